"""What a head is called, and the evidence that decides it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from normscope.network.attention.attention_maps import HeadsByCall
from normscope.option_checks import check_number

HeadType = Literal["argmax", "mean", "mixed", "undecided"]
"""What a head is called; see `HeadTypes`."""
HEAD_TYPES: tuple[HeadType, ...] = ("argmax", "mean", "mixed", "undecided")

HeadKey: TypeAlias = tuple[str, int]
"""The name of an attention call and the number of a head in it."""


@dataclass(frozen=True)
class HeadTypes:
    """The thresholds by which a head is named, from its behaviour in the saturated network.

    `argmax`: at most a share `argmax_split` of the queries attend to more than one
    position. `mean`: at least `mean_split` of the queries do, and on average to at
    least `mean_share` of the positions they can see. Anything else is `mixed`.

    >>> ns.HeadTypes().name(split=0.0, share=0.1)
    ('argmax', 0.1)
    >>> ns.HeadTypes(argmax_split=0.01).name(split=0.05, share=0.1)[0]
    'mixed'
    """

    argmax_split: float = 0.1
    mean_split: float = 0.5
    mean_share: float = 0.25

    def __post_init__(self) -> None:
        for option in ("argmax_split", "mean_split", "mean_share"):
            check_number(option, getattr(self, option), 0)

    def name(self, split: float, share: float) -> tuple[HeadType, float]:
        """The type, and its margin: how far `split` and `share` could move before the type changes."""
        if split <= self.argmax_split:
            return "argmax", self.argmax_split - split
        to_mean = min(split - self.mean_split, share - self.mean_share)
        if to_mean >= 0:
            return "mean", min(to_mean, split - self.argmax_split)
        return "mixed", min(split - self.argmax_split, -to_mean)


@dataclass(frozen=True)
class Trust:
    """What a sample confirmed about a head: that its ties are ties; the share of soft rows that stay soft."""

    ties: bool = False
    soft: float = 0.0


@dataclass(frozen=True)
class HeadEvidence:
    """One head at one scale: means over queries. Sums of parts are explained in `hard_measures`.

    `split`, `share` and `positions` are the best estimates; `bounds` says between which values they lie.
    """

    parts: Mapping[str, float]
    deviation: float

    def bounds(self, trust: Trust) -> tuple[tuple[float, float], tuple[float, float]]:
        """The least and the greatest (split, share) that the rows allow."""
        part = self.parts
        low = [part["known split"], part["known share"] + part["rest alone"]]
        high = [
            part["known split"] + part["settled split"] + part["rest split"],
            part["known share"] + part["settled share"] + part["rest most"],
        ]
        low[0] += part["settled split"] if trust.ties else 0.0
        low[1] += part["settled share" if trust.ties else "settled alone"]
        stay, leave = trust.soft, 1 - trust.soft
        low[0] += stay * part["soft split"]
        low[1] += stay * part["soft share"] + leave * part["soft alone"]
        high[0] += stay * part["soft split"] + leave * part["soft"]
        high[1] += stay * part["soft share"] + leave * part["soft most"]
        return (low[0], low[1]), (high[0], high[1])

    def type(self, types: HeadTypes, trust: Trust) -> tuple[HeadType, float]:
        """The type and its margin; `undecided` if the bounds allow more than one type."""
        low, high = self.bounds(trust)
        if types.name(*low)[0] != types.name(*high)[0] or self.parts["lost"] == 1:
            return "undecided", 0.0
        return types.name(self.parts["split"], self.parts["share"])


def head_evidence(found: HeadsByCall) -> Iterator[tuple[HeadKey, HeadEvidence]]:
    """The evidence of every head at one scale."""
    for (name, first), sums in found.items():
        queries = float(sums.queries)
        columns = {key: values.tolist() for key, values in sums.sums.items()}
        for head in range(len(columns["positions"])):
            yield (
                (name, first + head),
                _evidence({key: values[head] for key, values in columns.items()}, queries),
            )


def _evidence(total: dict[str, float], queries: float) -> HeadEvidence:
    """Means over all queries; what a row attends to, over those that are finite."""
    finite = queries - total["lost"]
    over = {name: finite if name in ("positions", "squares", "split", "share") else queries for name in total}
    parts = {name: value / over[name] if over[name] else math.nan for name, value in total.items()}
    return HeadEvidence(parts, math.sqrt(max(0.0, parts["squares"] - parts["positions"] ** 2)))
