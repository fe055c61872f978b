"""States that are images: which axis of [batch, ?, ?, ?] is the width, told by the modules of the block."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from normscope.errors import ModelError


@dataclass(frozen=True)
class AxisSizes:
    """The sizes that modules expect of the second axis (convolutions) and of the last (linear layers)."""

    second: frozenset[int]
    last: frozenset[int]

    def width_last(self, states: Tensor, block: str) -> Tensor:
        """The states with the width as their last axis; ModelError if it can be either of the two."""
        if states.dim() != 4:
            return states
        second, last = states.shape[1], states.shape[-1]
        if second not in self.second:
            return states
        for_second = 1 + (second in self.last)
        for_last = (last in self.last) * (1 + (last in self.second))
        if for_second == for_last:
            raise ModelError(
                f"states of {block or 'the model'} are {list(states.shape)}, and its modules do not tell "
                "which axis is the width: measure images of another size."
            )
        return states.movedim(1, -1) if for_second > for_last else states


def axis_sizes(block: nn.Module) -> AxisSizes:
    """What the modules of a block say about the axes of its states."""
    second, last = set[int](), set[int]()
    for module in block.modules():
        if isinstance(module, _ConvNd):
            second |= {module.in_channels, module.out_channels}
        elif isinstance(module, _BatchNorm):
            second.add(module.num_features)
        elif isinstance(module, nn.GroupNorm):
            second.add(module.num_channels)
        elif isinstance(module, nn.Linear):
            last |= {module.in_features, module.out_features}
        elif isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
            last.add(module.normalized_shape[-1])
    return AxisSizes(frozenset(second), frozenset(last))
