"""Does position t see later tokens? Change them and compare the earlier states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normscope.errors import ModelError, UsageError
from normscope.network.running.batches import Batch, as_batch
from normscope.network.running.eval_mode import evaluating
from normscope.network.watching.block_lists import BlockList, find_blocks
from normscope.network.watching.hidden_states import OUTPUT, Edge, first_states, visiting
from normscope.option_checks import check_seed
from normscope.table import Table, Tabular

ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 5e-3}
_INPUTS = ("decoder_input_ids", "input_ids", "inputs_embeds", "tgt", "src", "x", "input", "idx")


@dataclass(frozen=True, repr=False)
class LookAhead(Tabular):
    """How much earlier states change when later tokens do.

    `change` is the largest relative change ‖h′ − h‖/‖h‖ of a state at or before the
    cut; `module` is the first block at whose output it exceeds rounding. `sees_future`
    is False for a causal model and True for a bidirectional one such as BERT.

    >>> result = ns.LookAhead(sees_future=True, change=0.3, module="layers.0", layer=1)
    >>> bool(result), len(result.table)
    (True, 1)
    """

    sees_future: bool
    change: float
    module: str | None
    layer: int | None

    def __bool__(self) -> bool:
        return self.sees_future

    @property
    def table(self) -> Table:
        """A single row."""
        return Table({name: [value] for name, value in vars(self).items()})


def looks_ahead(model: nn.Module, batch: Any, *, seed: int = 0) -> LookAhead:
    """Whether states at position t depend on tokens after t, and by how much.

    Everything after a cut is replaced, for cuts at a quarter, a half and the last but
    one position of the sequence. In a causal model, states up to the cut change by no
    more than rounding. `batch` is what `model` is called with, as in `saturation`; `seed` is the seed of
    the replacements. Of an encoder–decoder model the decoder is examined.

    >>> import torch
    >>> import normscope as ns
    >>> model = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> ns.looks_ahead(model, torch.randn(4, 6, 8)).sees_future
    True
    >>> mask = torch.nn.Transformer.generate_square_subsequent_mask(6)
    >>> ns.looks_ahead(model, {"src": torch.randn(4, 6, 8), "src_mask": mask}).sees_future
    False
    """
    seed = check_seed(seed)
    given = as_batch(batch)
    with evaluating(model):
        name, tokens = _input(given)
        length = tokens.shape[1]
        if length < 2:
            raise UsageError(
                "a sequence of one token has no later tokens: use a batch with at least two positions"
            )
        lists = _block_lists(model, given)
        plain = _states(model, given, lists)
        changes: dict[Edge, float] = {}
        for cut in sorted({length // 4, length // 2, length - 2}):
            other = _states(model, _replaced(given, name, _perturbed(tokens, cut, seed)), lists)
            for edge, states in plain.items():
                axis = _sequence_axis(states, length)
                if axis is not None and edge in other:
                    change = _change(states, other[edge], axis, cut)
                    changes[edge] = max(changes.get(edge, 0.0), change)
        if not changes:
            raise UsageError(
                f"no state of the model has one entry per position of the input ({length}), so earlier and "
                "later positions cannot be distinguished"
            )
    return _summary(changes, plain[min(changes)].dtype)


def meant_causal(model: nn.Module) -> bool:
    """Whether the model is meant to be causal, by its class, config, attributes or a triangular mask."""
    config = getattr(model, "config", None)
    names = (*(getattr(config, "architectures", None) or ()), type(model).__name__)
    if any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names):
        return True
    if getattr(config, "is_decoder", False) and not getattr(config, "is_encoder_decoder", False):
        return True
    flags = any(getattr(module, "is_causal", False) is True for module in model.modules())
    return flags or any(_triangular(buffer) for buffer in model.buffers())


def _summary(changes: dict[Edge, float], dtype: torch.dtype) -> LookAhead:
    allowed = ROUNDING.get(dtype, 1e-4)
    worst = max(changes.values(), default=0.0)
    first = next((edge for edge, change in changes.items() if not change <= allowed), None)
    if first is None:
        return LookAhead(False, worst, None, None)
    return LookAhead(True, worst, first.module, first.layer)


def _input(batch: Batch) -> tuple[str | int, Tensor]:
    """The argument that is the sequence, [batch, sequence, …]: its name or position, and the tensor."""
    for name in _INPUTS:
        if isinstance(batch.kwargs.get(name), Tensor):
            return name, batch.kwargs[name]
    for position in range(len(batch.args) - 1, -1, -1):  # a decoder's input is the last one
        if isinstance(batch.args[position], Tensor) and batch.args[position].dim() >= 2:
            return position, batch.args[position]
    raise UsageError(
        "cannot tell which argument is the sequence: expected a tensor [batch, sequence] as an argument, or "
        f"one named {', '.join(_INPUTS)}"
    )


def _replaced(batch: Batch, where: str | int, tokens: Tensor) -> Batch:
    if isinstance(where, str):
        return Batch(batch.args, {**batch.kwargs, where: tokens}, batch.mask, batch.decoder_mask)
    args = (*batch.args[:where], tokens, *batch.args[where + 1 :])
    return Batch(args, batch.kwargs, batch.mask, batch.decoder_mask)


def _perturbed(tokens: Tensor, cut: int, seed: int) -> Tensor:
    """The sequence with everything after the cut replaced by other tokens of the batch, or by noise."""
    generator = torch.Generator().manual_seed(seed)
    changed = tokens.clone()
    later = changed[:, cut + 1 :]
    if tokens.is_floating_point():
        later += torch.randn(later.shape, generator=generator).to(later) * tokens.std()
        return changed
    known = torch.unique(tokens)
    if known.numel() == 1:
        known = torch.cat([known, torch.where(known > 0, known - 1, known + 1)]).sort().values
    index = torch.searchsorted(known, later.contiguous())
    shift = torch.randint(1, known.numel(), later.shape, generator=generator).to(index)
    changed[:, cut + 1 :] = known[(index + shift) % known.numel()]
    return changed


def _block_lists(model: nn.Module, batch: Batch) -> list[BlockList]:
    """The decoder's lists, or all if there is no decoder; none in a model without repeated blocks."""
    try:
        lists = find_blocks(model, batch)
    except ModelError:
        return []
    return [blocks for blocks in lists if blocks.decoder] or lists


def _states(model: nn.Module, batch: Batch, lists: Sequence[BlockList]) -> dict[Edge, Tensor]:
    """The state after every block; of a model without blocks, its output."""
    found: dict[Edge, Tensor] = {}

    def keep(edge: Edge, states: Tensor) -> None:
        if edge.layer > 0:
            found[edge] = states.clone()

    with visiting(model, lists, keep):
        output = first_states(batch.run(model))
    if not lists and output is not None:
        found[OUTPUT] = output
    return found


def _change(states: Tensor, other: Tensor, axis: int, cut: int) -> float:
    one = states.narrow(axis, 0, cut + 1).double()
    two = other.narrow(axis, 0, cut + 1).double()
    size = one.norm(dim=-1).clamp_min(torch.finfo(torch.float64).tiny)
    return float(((two - one).norm(dim=-1) / size).max())


def _sequence_axis(states: Tensor, length: int) -> int | None:
    """The axis of positions; None for states of another length, such as those of a pooled sequence."""
    axes = [axis for axis in (1, 0) if axis < states.dim() - 1 and states.shape[axis] == length]
    return axes[0] if axes else None


def _triangular(buffer: Tensor) -> bool:
    """Whether a square buffer has one value on and below the diagonal and another above it."""
    if (
        buffer.dim() < 2
        or buffer.shape[-1] != buffer.shape[-2]
        or buffer.shape[-1] < 2
        or buffer.is_complex()
    ):
        return False
    square = buffer.reshape(-1, *buffer.shape[-2:])[0]
    lower = torch.ones_like(square, dtype=torch.bool).tril()
    below, above = square[lower], square[~lower]
    return bool((below == below[0]).all() and (above == above[0]).all() and below[0] != above[0])
