"""Parameters as rows of the run file's `tensor` table, for a scan and for a live monitor alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Protocol

from normscope.anatomy import locate_all
from normscope.run import Run, TensorRow


class NamedTensor(Protocol):
    """What a row says about a parameter, wherever the parameter comes from."""

    @property
    def name(self) -> str:
        """Its name in the model."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole parameter."""

    @property
    def dtype(self) -> str:
        """Torch's name of the dtype, such as "float32"."""

    @property
    def numel(self) -> int:
        """The number of elements."""


def add_tensors(run: Run, tensors: Sequence[NamedTensor], tied_to: Mapping[str, str]) -> list[TensorRow]:
    """Write one row per tensor to the run file and return them; names already there keep their ids.

    `tied_to` maps a name to the name of the tensor that is counted instead of it.
    """
    rows = tensor_rows(tensors, tied_to, {row.name: row.id for row in run.tensors()})
    for row in rows:
        run.add_tensor(row)
    return rows


def tensor_rows(
    tensors: Sequence[NamedTensor], tied_to: Mapping[str, str], known: Mapping[str, int]
) -> list[TensorRow]:
    """One row per tensor; `known` has the ids of names that are already in the run file."""
    names = [tensor.name for tensor in tensors]
    unused = count(max(known.values(), default=0) + 1)
    ids = {**known, **{name: next(unused) for name in names if name not in known}}
    places = locate_all(names)
    rows = []
    for tensor in tensors:
        place, tied = places[tensor.name], tied_to.get(tensor.name)
        where = (place.component, place.layer, place.role)
        what = (tensor.shape, tensor.dtype, tensor.numel)
        rows.append(TensorRow(ids[tensor.name], tensor.name, *where, *what, ids[tied] if tied else None))
    return rows
