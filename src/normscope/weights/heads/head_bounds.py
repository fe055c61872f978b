"""The bound on the logits of each head, from the norm before an attention and the norms inside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from normscope.run import TensorRow
from normscope.weights.heads.attention_facts import AttentionFacts
from normscope.weights.heads.attention_tensors import AttentionTensors, module_of
from normscope.weights.heads.head_matrices import HeadMatrices, Read
from normscope.weights.heads.logit_bound import NormOutput, Vector, logit_bound, normed_length
from normscope.weights.spectra.weighted_values import Array

PLUS_ONE = "rms+1"


@dataclass(frozen=True)
class LogitBounds:
    """A bound for each head before the scale, NaN for one with NaN; none if `why` says why.

    `normed` says whether queries or keys pass through norms of their own.
    """

    values: Sequence[float]
    why: str
    normed: bool


def logit_bounds(
    attention: AttentionTensors,
    facts: AttentionFacts,
    heads: HeadMatrices,
    rows: Sequence[TensorRow],
    read: Read,
) -> LogitBounds:
    """Bounds from the norms of a checkpoint; `rows` are all of its tensors."""
    inside = {side: attention.norms(side) for side in ("q", "k")}
    normed = any(inside.values())
    if facts.why:
        return LogitBounds((), facts.why, normed)
    if normed:
        return _from_inner_norms(facts, heads, inside, read)
    if attention.cross:
        return LogitBounds((), "its keys are made of another sequence, behind a norm of its own", normed)
    before = _norm_before(attention, facts, rows, read)
    if isinstance(before, str):
        return LogitBounds((), before, normed)
    rotary = facts.rotary is not False
    return LogitBounds([_bound(heads, head, before, rotary) for head in range(heads.heads)], "", normed)


def _bound(heads: HeadMatrices, head: int, norm: NormOutput, rotary: bool) -> float:
    group = heads.group(head)
    sides = [(heads.queries, heads.query_bias, head), (heads.keys, heads.key_bias, group)]
    query, key = (
        norm.folded(matrices[i], bias[i] if bias is not None else None) for matrices, bias, i in sides
    )
    finite = all(np.isfinite(part).all() for side in (query, key) for part in side)
    return logit_bound(query, key, rotary) if finite else float("nan")


def _norm_before(
    attention: AttentionTensors, facts: AttentionFacts, rows: Sequence[TensorRow], read: Read
) -> NormOutput | str:
    """The norm whose output the projections read, or why it is not known."""
    kind, *names = facts.norm
    patterns = [pattern for name in names if (pattern := _pattern(name, attention.first))]
    for pattern in patterns:
        found = [row for row in rows if re.fullmatch(pattern, module_of(row.name))]
        if len({module_of(row.name) for row in found}) == 1:
            gain, shift = _gain_and_shift(found, kind, read)
            width = attention.first.shape
            if gain is None or len(gain) in width:
                return NormOutput(gain, shift, kind == "layer")
    return "the norm before it was not found in the checkpoint"


def _pattern(name: str, first: TensorRow) -> str | None:
    """A name of a norm as a regular expression; None for the layer before the first."""
    if first.layer is None:
        return None
    found = re.match(rf"(.*?[._/])0*{first.layer}(?=[./])", first.name)
    if found is None or (first.layer == 0 and "{previous}" in name) or (first.layer and "{any}" in name):
        return None
    block = re.escape(found.group())
    previous = re.escape(f"{found[1]}{first.layer - 1}")
    words = {"{block}": block, "{previous}": previous, "{any}": "(.*[.])?"}
    parts = re.split(r"(\{\w+\})", name)
    return "".join(words[part] if part in words else re.escape(part) for part in parts)


def _gain_and_shift(rows: Sequence[TensorRow], kind: str, read: Read) -> tuple[Vector | None, Vector | None]:
    """The gain and the shift of a norm's tensors, None for one that it lacks."""
    shifts = [row for row in rows if re.search(r"(bias|beta)(:\d+)?$", row.name)]
    gains = [row for row in rows if row not in shifts]
    gain = np.asarray(read(gains[0]), np.float64) if gains else None
    if gain is not None and kind == PLUS_ONE:
        gain = gain + 1
    return gain, np.asarray(read(shifts[0]), np.float64) if shifts else None


def _from_inner_norms(
    facts: AttentionFacts, heads: HeadMatrices, inside: dict[str, list[TensorRow]], read: Read
) -> LogitBounds:
    """Queries and keys as long as their own norms let them be."""
    lengths: dict[str, Array] = {}
    for side, count in (("q", heads.heads), ("k", heads.key_heads)):
        rows = inside[side]
        if len({module_of(row.name) for row in rows}) != 1:
            return LogitBounds((), "the norms of its queries and keys are not one for each", True)
        gain, shift = _gain_and_shift(rows, facts.norm[0], read)
        found = _lengths(gain, shift, count, heads.queries.shape[1])
        if found is None:
            return LogitBounds(
                (), f"{rows[0].name} has a length that fits neither a head nor all heads", True
            )
        lengths[side] = found
    values = [float(lengths["q"][h] * lengths["k"][heads.group(h)]) for h in range(heads.heads)]
    return LogitBounds(values, "", True)


def _lengths(gain: Vector | None, shift: Vector | None, count: int, size: int) -> Array | None:
    """The largest length of each head: after a norm of each head, or one over all of them."""
    numbers = gain if gain is not None else shift
    if numbers is None or numbers.size not in (size, count * size):
        return None
    values = numbers.size if numbers.ndim == 1 else size  # [heads, size] is a norm of each head
    parts = [
        None if each is None else np.broadcast_to(each.reshape(-1, size), (count, size))
        for each in (gain, shift)
    ]
    rows = [[None if part is None else part[head] for part in parts] for head in range(count)]
    return np.array([normed_length(gain_, shift_, values) for gain_, shift_ in rows])
