"""Parameters that an exporter merged because they were equal, and matrices that it stored twice.

At the beginning of training all gains are 1 and all biases 0: exporters store one of them, and let every
layer take it. A head that is tied to the embedding is stored a second time, transposed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from normscope.checkpoints.base import ITEM_SIZES, Tensor
from normscope.checkpoints.extents import Extent
from normscope.checkpoints.formats.onnx.onnx_graph import OnnxGraph, OnnxNode, StoredTensor
from normscope.checkpoints.formats.onnx.onnx_weights import Uses, is_anonymous, place_in_module

Taken = list[tuple[OnnxNode, int]]
_COMPARED = 64
"""Elements of two matrices that are compared; two that are trained apart differ in nearly all."""
MERGED_NOTE = "parameters with equal values were stored once by the exporter; each of them counts"


def separated(graph: OnnxGraph, uses: Uses) -> list[tuple[StoredTensor, str, Taken]]:
    """Each stored tensor with the nodes that take it; merged ones once for each parameter."""
    again = _renamed(graph)
    found = []
    for stored in graph.tensors:
        taken = uses.of(stored.name)
        names = again.get(stored.name, [])
        found.append((stored, "", taken))
        found += [(replace(stored, name=name), name, uses.of(name)) for name in names]
        found += [(replace(stored, name=name), name, some) for name, some in _by_module(stored, taken, names)]
    return found


def _renamed(graph: OnnxGraph) -> dict[str, list[str]]:
    """The names that stored tensors are given again: `layers.1.norm.weight` for `layers.0.norm.weight`."""
    stored = {tensor.name for tensor in graph.tensors}
    found: dict[str, list[str]] = {}
    for node in graph.nodes:
        if node.operator == "Identity" and len(node.inputs) == len(node.outputs) == 1:
            source, name = node.inputs[0], node.outputs[0]
            if source in stored and name not in stored and "." in name and not is_anonymous(name):
                found.setdefault(source, []).append(name)
    return found


def _by_module(
    stored: StoredTensor, taken: Sequence[tuple[OnnxNode, int]], names: Sequence[str]
) -> list[tuple[str, Taken]]:
    """The other modules that take a vector as their own gain or bias, if no names tell them apart."""
    if names or sum(size > 1 for size in stored.shape) != 1:
        return []
    modules: dict[str, Taken] = {}
    for use in taken:
        if name := place_in_module(*use):
            modules.setdefault(name, []).append(use)
    first = stored.name if stored.name in modules else next(iter(modules), "")
    return [(name, some) for name, some in modules.items() if name != first]


def transposed_copies(
    tensors: Mapping[str, Tensor], extents: Mapping[str, Extent], tables: Iterable[str], heads: Iterable[str]
) -> dict[str, str]:
    """Matrices that are an embedding, transposed: name → that of the embedding."""
    found = {}
    waiting = list(heads)[:100]
    for table in list(tables)[:20]:
        shape, dtype = tensors[table].shape, tensors[table].dtype
        for head in waiting:
            other = tensors[head]
            alike = len(shape) == 2 and other.shape == shape[::-1] and other.dtype == dtype and head != table
            size = (shape[0], shape[-1]) if alike else (0, 0)
            if alike and _equal_transposed(extents[table], extents[head], size, ITEM_SIZES[dtype]):
                found[head] = table
    return found


def _equal_transposed(first: Extent, second: Extent, shape: tuple[int, int], width: int) -> bool:
    rows, columns = shape
    if not rows * columns:
        return False
    some = set()
    for index in range(_COMPARED):
        row, column = index * 7919 % rows, index * 104729 % columns
        here, there = (row * columns + column) * width, (column * rows + row) * width
        value = bytes(first.read(here, here + width))
        if value != bytes(second.read(there, there + width)):
            return False
        some.add(value)
    return len(some) > 1
