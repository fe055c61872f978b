"""Tensor subclasses of torchao in a pickle: an outer tensor without values, whose parts are plain tensors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from normscope.checkpoints.formats.torch.pickle_values import CallRecord, Global
from normscope.checkpoints.formats.torch.records import TensorRecord, parse_tensor, read_size

_MOST_PARTS = 16


@dataclass(frozen=True)
class Subclass:
    """The class of an outer tensor, and its attributes: tensors, and settings of which sizes are kept."""

    kind: str
    attributes: dict[str, Any]

    def parts(self, name: str) -> Iterator[tuple[str, Any]]:
        """The inner tensors under the names that torchao's safetensors give them."""
        module, dot, last = name.rpartition(".")
        for attribute, value in self.attributes.items():
            if isinstance(parse_tensor(value), TensorRecord):
                yield f"{module}{dot}_{last}_{attribute}", value

    @property
    def description(self) -> str:
        """The class and its block size, as torchao's safetensors have them in their metadata."""
        block = self.attributes.get("block_size")
        settings = {} if block is None else {"block_size": list(read_size(block))}
        return json.dumps({"_type": self.kind, "_data": settings})


def parse_subclass(value: Any) -> Subclass | None:
    """A subclass of torchao that wraps other tensors; None for anything else."""
    call = value
    for _ in range(8):
        if not isinstance(call, CallRecord) or not isinstance(call.args, tuple) or not call.args:
            return None
        if isinstance(call.function, Global) and call.function.name == "_rebuild_from_type_v2":
            break
        call = call.args[0]  # a parameter around it
    else:
        return None
    if len(call.args) < 4 or not isinstance(call.args[1], Global) or not isinstance(call.args[3], dict):
        return None
    kind, attributes = call.args[1], call.args[3]
    if not kind.module.startswith("torchao.") or len(attributes) > _MOST_PARTS:
        return None
    return Subclass(kind.name[:100], {k: v for k, v in attributes.items() if isinstance(k, str)})
