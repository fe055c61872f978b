"""Parameters as rows of the run file's `tensor` table, for a scan and for a live monitor alike."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Protocol

from normscope.anatomy import OUTSIDE_BODY, Place, locate_all
from normscope.run import Run, TensorRow
from normscope.weights.networks import networks


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


def add_tensors(
    run: Run, tensors: Sequence[NamedTensor], tied_to: Mapping[str, str], apart: Sequence[str] = ()
) -> list[TensorRow]:
    """Write one row per tensor to the run file and return them; names already there keep their ids.

    `tied_to` maps a name to the name of the tensor that is counted instead of it. `apart` are the first
    parts of names that the checkpoint keeps apart as networks of their own.
    """
    rows = tensor_rows(tensors, tied_to, {row.name: row.id for row in run.tensors()}, apart)
    run.add_tensors(rows)
    return rows


def tensor_rows(
    tensors: Sequence[NamedTensor],
    tied_to: Mapping[str, str],
    known: Mapping[str, int],
    apart: Sequence[str] = (),
) -> list[TensorRow]:
    """One row per tensor; `known` has the ids of names that are already in the run file."""
    names = [tensor.name for tensor in tensors]
    unused = count(max(known.values(), default=0) + 1)
    ids = {**known, **{name: next(unused) for name in names if name not in known}}
    components = networks(names, apart)
    places = _places(tensors, tied_to, components)
    rows = []
    for tensor in tensors:
        place, tied = places[tensor.name], tied_to.get(tensor.name)
        where = (components.get(tensor.name, place.component), place.layer, place.role)
        what = (tensor.shape, tensor.dtype, tensor.numel)
        rows.append(TensorRow(ids[tensor.name], tensor.name, *where, *what, ids[tied] if tied else None))
    return rows


def _places(
    tensors: Sequence[NamedTensor], tied_to: Mapping[str, str], components: Mapping[str, str]
) -> dict[str, Place]:
    """Where each tensor is; what is tied to an embedding or a head is outside the body as well."""
    places: dict[str, Place] = {}
    for network in dict.fromkeys(components.get(tensor.name, "") for tensor in tensors):
        members = [tensor for tensor in tensors if components.get(tensor.name, "") == network]
        places |= _places_in_network(members, network)
    for name, counted in tied_to.items():
        if places[name].role in OUTSIDE_BODY and places[counted].role not in OUTSIDE_BODY:
            places[counted] = replace(places[name], component=places[counted].component)
    return places


def _places_in_network(tensors: Sequence[NamedTensor], network: str) -> dict[str, Place]:
    """Where each tensor of one network is; its name may begin with that of the network."""
    short = {t.name: re.sub(rf"^(?:.*?[./])?{re.escape(network)}[./]", "", t.name) for t in tensors}
    names = short if network and len(set(short.values())) == len(short) else {t.name: t.name for t in tensors}
    live = {names[t.name]: kind for t in tensors if (kind := getattr(t, "kind", None))}
    places = locate_all(names.values(), {names[t.name]: t.shape for t in tensors}, live)
    return {name: places[inner] for name, inner in names.items()}
