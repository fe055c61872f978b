"""Roles that names do not give: from the classes of a live model's modules, and from shapes.

The width d is the most common length of a model. A table is a matrix of n rows of width d:

    [V, d] once or twice    the embedding, and an untied head: they share the vocabulary's length V
    [V]                     the bias of the head
    [n, d] once             a table of positions, or a head over n classes

A matrix of the body has such a shape too, but once in every layer and, in an MLP, beside its transpose. What
cannot be told apart by that (one layer, and a vocabulary as long as its MLP) is left as it is.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from normscope.anatomy import Place

EMBEDDING, LINEAR, NORM = "embedding", "linear", "norm"
"""Kinds of modules of a live model."""
TABLES = ("embedding", "head")
KEPT = ("bias", "lora", "head")
"""Roles that a name gives and a class does not change: T5's position biases are an Embedding."""
MATRICES = ("q", "k", "v", "qkv", "attention output", "mlp in", "mlp out", "gate")
"""Roles of matrices."""
MAPS = re.compile(r"proj(?:ection)?s?\b|(?:linear|dense|mapp?ing|transform)\b")
"""Names of matrices that map one width to another; alone, they are no table."""
LEAST_MATRICES = 3
"""Matrices of the body without which a model is too small to tell its tables from its layers."""
LARGE = 16
"""A length of this many widths is no part of a layer."""


@dataclass(frozen=True)
class _Matrix:
    """A matrix, or a stack of one matrix; `place` is what its name says."""

    name: str
    shape: tuple[int, int]
    place: Place

    @property
    def free(self) -> bool:
        """Whether its name says nothing, or is a single word outside the layers, such as `v`."""
        return not self.place.known or (self.place.layer is None and self.name.count(".") < 2)

    @property
    def layers(self) -> list[tuple[str, str, str]]:
        """Each number in the name, which may be that of the layer, with what is before and after it."""
        numbers = re.finditer(r"\d+", self.name)
        return [(self.name[: n.start()], n.group(), self.name[n.end() :]) for n in numbers]

    def beside(self, width: int) -> int | None:
        """The length beside the width; None if the width is not one of the two, or both."""
        rows, columns = self.shape
        return None if rows == columns else rows if columns == width else columns if rows == width else None


def roles_by_kind_and_shape(
    places: Mapping[str, Place], shapes: Mapping[str, Sequence[int]], kinds: Mapping[str, str]
) -> dict[str, str]:
    """Roles of tensors for which the class of the module or the shape says more than the name."""
    found = _by_kind(places, kinds)
    roles = {name: place.role for name, place in places.items() if place.known} | found
    found |= _gains(places, shapes, found)
    matrices = [m for m in _matrices(places, shapes) if found.get(m.name) != "norm"]
    found |= _vectors(places, shapes, matrices)
    width = _width(matrices, shapes)
    if width is not None:
        found |= _heads_of(matrices, roles, width, kinds)
        found |= _tables(matrices, {**roles, **found}, shapes, width)
        roles |= found
        lengths = {m.beside(width) for m in matrices if roles.get(m.name) == "head"}
        found |= _biases(places, shapes, roles, lengths)
    return found


def _by_kind(places: Mapping[str, Place], kinds: Mapping[str, str]) -> dict[str, str]:
    roles = {EMBEDDING: "embedding", NORM: "norm"}
    known = {name: kind for name, kind in kinds.items() if name in places and kind in roles}
    return {name: roles[kind] for name, kind in known.items() if places[name].role not in KEPT}


def _gains(
    places: Mapping[str, Place], shapes: Mapping[str, Sequence[int]], found: Mapping[str, str]
) -> dict[str, str]:
    """Vectors called weight, scale or gamma: the gains of norms, and the biases beside them."""
    vectors = {name for name in places if len(shapes.get(name, ())) == 1 and not places[name].known}
    gains = [name for name in vectors if re.search(r"[./_](?:weight|scale|gamma|g)$", name)]
    parents = {_parent(name) for name in gains}
    return {name: "norm" for name in vectors if _parent(name) in parents and name not in found}


def _vectors(
    places: Mapping[str, Place], shapes: Mapping[str, Sequence[int]], matrices: Sequence[_Matrix]
) -> dict[str, str]:
    """A vector whose name is that of a matrix is the gain of a norm: the first module of `mlp.net`, say."""
    lengths = {length for matrix in matrices for length in matrix.shape}
    vectors = {name for name in places if len(shapes.get(name, ())) == 1 and shapes[name][0] in lengths}
    named = [name for name in vectors if re.search(r"[./_](?:weight|scale|gamma|g)$", name)]
    biased = {_parent(name) for name in vectors if re.search(r"[./_](?:bias|beta)$", name)}
    gains = {
        _parent(name)
        for name in named
        if places[name].role in MATRICES or (places[name].role == "other" and _parent(name) in biased)
    }
    return {name: "norm" for name in vectors if _parent(name) in gains}


def _matrices(places: Mapping[str, Place], shapes: Mapping[str, Sequence[int]]) -> list[_Matrix]:
    found = []
    cubes = Counter(shape[0] for shape in shapes.values() if len(shape) == 3)
    vectors = {shape[0] for shape in shapes.values() if len(shape) == 1}
    stacked = {length for length, n in cubes.items() if n >= LEAST_MATRICES and length not in vectors}
    for name, place in places.items():
        shape = tuple(shapes.get(name, ()))
        if len(shape) == 2 and shape[0] in stacked:
            continue  # the vectors of all layers in one tensor, as JAX stacks them
        while (
            len(shape) > 2 and shape[0] == 1
        ):  # a table of positions, stored with the dimension of the batch
            shape = shape[1:]
        if len(shape) == 2 and min(shape) > 1:
            found.append(_Matrix(name, (shape[0], shape[1]), place))
    return found


def _width(matrices: Sequence[_Matrix], shapes: Mapping[str, Sequence[int]]) -> int | None:
    """The length that most matrices have, and then most vectors; None if two are equally common."""
    lengths = Counter(length for matrix in matrices for length in set(matrix.shape))
    vectors = Counter(shape[0] for shape in shapes.values() if len(shape) == 1)
    ranked = sorted(((count, vectors[length], length) for length, count in lengths.items()), reverse=True)
    if not ranked or (len(ranked) > 1 and ranked[0][:2] == ranked[1][:2]):
        return None
    return ranked[0][2]


def _by_length(matrices: Sequence[_Matrix], width: int) -> dict[int, list[_Matrix]]:
    """The matrices that have the width as one of their lengths, by the other one."""
    found: defaultdict[int, list[_Matrix]] = defaultdict(list)
    for matrix in matrices:
        length = matrix.beside(width)
        if length is not None:
            found[length].append(matrix)
    return found


def _heads_of(
    matrices: Sequence[_Matrix], roles: Mapping[str, str], width: int, kinds: Mapping[str, str]
) -> dict[str, str]:
    """Matrices as long as a known embedding are its head; one as long as a known head is its embedding."""
    found: dict[str, str] = {}
    inside = {m.name for m in _layers(matrices)}
    for alike in _by_length(matrices, width).values():
        known = [roles[m.name] for m in alike if roles.get(m.name) in TABLES]
        fitting = [m for m in alike if roles.get(m.name) not in TABLES and m.name not in inside]
        lone = [m for m in fitting if m.place.layer is None] if len(fitting) > 1 else fitting
        chosen = lone if len(lone) == 1 else fitting if len({m.shape for m in fitting}) == 1 else []
        fit = all(m.free and kinds.get(m.name, LINEAR) == LINEAR for m in chosen)
        if fit and 0 < len(chosen) <= len(known):  # a model with four vocabularies has four heads
            found |= {m.name: "head" if "embedding" in known else "embedding" for m in chosen}
    return found


def _tables(
    matrices: Sequence[_Matrix], roles: Mapping[str, str], shapes: Mapping[str, Sequence[int]], width: int
) -> dict[str, str]:
    """Embeddings and heads among the matrices whose names say nothing."""
    layers = _layers(matrices)
    inside = {m.name for m in layers}
    body = sum(width in m.shape and roles.get(m.name) not in TABLES for m in matrices)
    lengths = Counter(length for m in matrices if m.name not in inside for length in set(m.shape))
    parents = Counter(_parent(name) for name in shapes)
    found: dict[str, str] = {}
    for length, alike in _by_length(matrices, width).items():
        group = [m for m in alike if m.name not in inside]
        free = bool(group) and lengths[length] == len(group) and not any(m.name in roles for m in group)
        if len(group) == 1 and MAPS.search(group[0].name) and not _unlike(length, width, LARGE):
            continue  # between two widths
        if free and body - len(group) >= LEAST_MATRICES and _outside(group, layers, width):
            found |= _named(group, [m.name for m in group if parents[_parent(m.name)] > 1])
    return found


def _layers(matrices: Sequence[_Matrix]) -> list[_Matrix]:
    """The matrices of numbered layers: of the same names but for a number, an attention and an MLP in each.

    The experts of one layer and its heads are numbered as well, but they are one of the two only.
    """
    shared = Counter((before, number) for m in matrices for before, number, _ in m.layers)
    named: defaultdict[tuple[str, str], list[_Matrix]] = defaultdict(list)
    for matrix in matrices:
        for before, number, after in matrix.layers:
            if shared[before, number] > 1:  # not a module of one matrix between the layers of a Sequential
                named[before, after].append(matrix)
    stacks: defaultdict[str, list[list[_Matrix]]] = defaultdict(list)
    for (before, _), same in named.items():
        shape, count = Counter(m.shape for m in same).most_common(1)[0]
        if 1 < count > len(same) / 2:  # the last layer may be another one
            stacks[before].append([m for m in same if m.shape == shape])
    whole = {before: stack for before, stack in stacks.items() if _whole(stack)}
    members = {(b, n) for stack in whole.values() for same in stack for m in same for b, n, _ in m.layers}
    numbered = {(before, number) for before, number in members if before in whole}
    return [m for m in matrices if any((before, number) in numbered for before, number, _ in m.layers)]


def _whole(stack: Sequence[Sequence[_Matrix]]) -> bool:
    """Whether the layers have an attention and an MLP; an entry is the same matrix of all layers."""
    matrices = [same[0] for same in stack]
    return len(stack) > 3 or (_has_mlp(matrices) and len({m.shape for m in matrices}) > 2)


def _outside(group: Sequence[_Matrix], layers: Sequence[_Matrix], width: int) -> bool:
    """Whether matrices of one length are outside the layers, and not the only ones of their kind in one."""
    rows, columns = (sum(m.shape[side] == width for m in group) for side in (1, 0))
    length = group[0].beside(width) or 0
    if columns == 0:  # tables of n rows: an embedding, its untied head
        if layers:
            return rows <= 3
        return rows <= 2 and _unlike(length, width, LARGE) and (rows == 2 or length > width)
    if rows == columns == 1:  # an embedding and the transpose of a head, or the two matrices of an MLP
        return length >= LARGE * width or (_has_mlp(layers) and not _one_module(group, layers))
    return False


def _one_module(group: Sequence[_Matrix], layers: Sequence[_Matrix]) -> bool:
    """Whether the matrices have an outer module in common that does not hold the layers too."""
    first, second = (m.name.rsplit(".", 2)[0] for m in group)
    return first == second and not all(m.name.startswith(f"{first}.") for m in layers)


def _has_mlp(layers: Sequence[_Matrix]) -> bool:
    """Whether the layers have a matrix and one of the transposed shape."""
    shapes = {m.shape for m in layers}
    return any(rows != columns and (columns, rows) in shapes for rows, columns in shapes)


def _unlike(length: int, width: int, parts: int) -> bool:
    """Whether a length is no simple multiple of the width, as lengths in a layer are (3 d, 8/3 d, d/4)."""
    return length >= LARGE * width or width // gcd(length, width) > parts


def _named(group: Sequence[_Matrix], biased: Sequence[str]) -> dict[str, str]:
    """The first is the embedding, the others heads; but what has a bias is a head."""
    first = next((m.name for m in group if m.name not in biased), None)
    return {m.name: "embedding" if m.name == first else "head" for m in group}


def _biases(
    places: Mapping[str, Place],
    shapes: Mapping[str, Sequence[int]],
    roles: Mapping[str, str],
    lengths: Container[int | None],
) -> dict[str, str]:
    """Vectors beside an embedding or a head have its role; so has a lone one as long as a head."""
    larger = {_parent(name): name for name in places if len(shapes.get(name, ())) > 1}
    found = {}
    for name in places:
        if len(shapes.get(name, ())) == 1 and roles.get(name) in (None, "bias"):
            beside = larger.get(_parent(name))
            if beside is not None and roles.get(beside) in TABLES:
                found[name] = roles[beside]
            elif beside is None and name not in roles and shapes[name][0] in lengths:
                found[name] = "head"
            elif beside is not None and name not in roles and name.endswith("bias"):
                found[name] = "bias"
    return found


def _parent(name: str) -> str:
    """The name of the module: `head` for head.weight, head.bias and head_bias."""
    return re.sub(r"(?:^|[./_])(?:weight|bias|kernel|scale|gamma|beta|embedding|w|b|g)$", "", name)
