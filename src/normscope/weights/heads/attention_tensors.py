"""Which tensors of a network belong to one attention: its queries, keys, values, output, biases and norms.

Tensors belong together if their names share the module around them; the output projection of BERT is in a
module beside it, so the one of the same layer with the longest common beginning is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from normscope.errors import MatrixError
from normscope.run import TensorRow

FUSED, QUERY, KEY, VALUE, OUTPUT = "qkv", "q", "k", "v", "attention output"
LATENT = "latent"
_CROSS = re.compile(r"cross|encoder_?att|enc_?dec|src_att|context", re.IGNORECASE)
_LEAF = re.compile(r"[./_](weight|kernel(:\d+)?|bias(:\d+)?|scale|gamma|beta)$")
_NORM = {
    "q": re.compile(r"(^|[._])(q|query)_?(layer)?_?norm", re.I),
    "k": re.compile(r"(^|[._])(k|key)_?(layer)?_?norm", re.I),
}


@dataclass(frozen=True)
class AttentionTensors:
    """The matrices of one attention by role: a fused one, or q, k and v, and the output.

    `parent` is the beginning of their names, `vectors` are biases and norms with the same beginning. `why`
    says why the attention cannot be taken apart, if it cannot.
    """

    matrices: Mapping[str, TensorRow]
    parent: str
    vectors: Sequence[TensorRow]
    why: str = ""

    @property
    def first(self) -> TensorRow:
        """The tensor that stands for the queries and keys."""
        return next(iter(self.matrices.values()))

    @property
    def output(self) -> TensorRow | None:
        """The output projection, if there is one."""
        return self.matrices.get(OUTPUT)

    @property
    def cross(self) -> bool:
        """Whether its keys are made of another sequence than its queries."""
        return _CROSS.search(self.parent) is not None

    def bias(self, role: str) -> TensorRow | None:
        """The bias beside a matrix."""
        module = module_of(self.matrices[role].name)
        found = [row for row in self.vectors if module_of(row.name) == module and "bias" in row.name]
        return found[0] if len(found) == 1 else None

    def norms(self, side: str) -> list[TensorRow]:
        """The gains and shifts of a norm of the queries ("q") or keys ("k") inside the attention."""
        inside = [row for row in self.vectors if row.role in ("norm", "other", "bias", "q", "k")]
        return [row for row in inside if _NORM[side].search(row.name[len(self.parent) :])]


def module_of(name: str) -> str:
    """The name of the module that a parameter belongs to."""
    return _LEAF.sub("", name)


def find_attention(rows: Iterable[TensorRow]) -> list[AttentionTensors]:
    """Every attention of a network, in the order of its tensors."""
    listed = list(rows)
    places = dict.fromkeys((row.component, row.layer) for row in listed if row.role in (FUSED, QUERY, LATENT))
    found = []
    for place in places:
        found += _in_layer([row for row in listed if (row.component, row.layer) == place])
    return found


def _in_layer(rows: Sequence[TensorRow]) -> list[AttentionTensors]:
    matrices = [row for row in rows if len(row.shape) > 1 and row.tied_to is None]
    projections = [row for row in matrices if row.role in (FUSED, QUERY, KEY, VALUE, LATENT)]
    found = []
    for parent in dict.fromkeys(_parent(row) for row in projections):
        own = [row for row in projections if _parent(row) == parent]
        vectors = [row for row in rows if row.name.startswith(parent) and row not in matrices]
        norms = [row for row in matrices if row.role == "norm" and row.name.startswith(parent)]
        if any(row.role in (FUSED, QUERY, LATENT) for row in own):
            found.append(_attention(own, matrices, parent, [*vectors, *norms]))
    return found


def _attention(
    own: Sequence[TensorRow], matrices: Sequence[TensorRow], parent: str, vectors: Sequence[TensorRow]
) -> AttentionTensors:
    by_role = {row.role: row for row in own}
    output = _output(parent, [row for row in matrices if row.role == OUTPUT])
    ordered = {role: by_role[role] for role in (FUSED, QUERY, KEY, VALUE, LATENT) if role in by_role}
    return AttentionTensors(
        ordered | ({OUTPUT: output} if output else {}), parent, vectors, _why(own, by_role)
    )


def _why(own: Sequence[TensorRow], by_role: Mapping[str, TensorRow]) -> str:
    """Why an attention cannot be taken apart; "" if it can."""
    if LATENT in by_role:
        return (
            "its queries or keys are made in two steps (multi-head latent attention), whose heads also have "
            "parts that are rotated and shared; their products are not measured"
        )
    if wrong := next((row for row in own if len(row.shape) != 2), None):
        return f"{wrong.name} has the shape {list(wrong.shape)}: only matrices can be cut into heads"
    if len(own) != len(by_role) or by_role.keys() not in ({FUSED}, {QUERY, KEY, VALUE}):
        names = ", ".join(row.name for row in own)
        return f"its projections are {names}: neither queries, keys and values, nor one matrix of all three"
    return ""


def _parent(row: TensorRow) -> str:
    """The module around the projection, with its dot; "" at the top."""
    module = module_of(row.name)
    cut = max(module.rfind("."), module.rfind("/")) + 1
    return module[:cut]


def _output(parent: str, candidates: Sequence[TensorRow]) -> TensorRow | None:
    """The output projection with the longest common beginning; None if two have it."""
    shared = [_shared(parent, row.name) for row in candidates]
    best = [row for row, length in zip(candidates, shared, strict=True) if length == max(shared)]
    return best[0] if len(best) == 1 else None


def _shared(name: str, other: str) -> int:
    """How many parts two names have in common at their beginning."""
    pairs = zip(re.split("[./]", name), re.split("[./]", other), strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(name.count("."), other.count(".")) + 1)


def require_part(attention: AttentionTensors, kind: str) -> None:
    """Raise MatrixError if the products of this kind cannot be made."""
    if attention.why:
        raise MatrixError(attention.why)
    if kind == "ov" and attention.output is None:
        raise MatrixError("no output projection belongs to its values, or several could")
