"""Climb the scales on a small sample of the text, until layers and heads no longer change or precision ends.

The limit c → ∞ is not at any fixed c: a network whose queries and keys are tiny is still soft at 2^10, and
in float32 a large scale shows rounding instead of ties. So a few sentences are run at rising scales. They
show from which scale on each layer and each head stays the same, and which scale the full text needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import nn

from normscope.errors import ScaleOverflow
from normscope.network.attention.agreement import AgreementWatcher
from normscope.network.running.batches import Batch
from normscope.network.running.passes import PLAIN, Watcher, run_watched
from normscope.network.running.precision import in_float64
from normscope.network.running.scaling import ModelScale
from normscope.network.settling.head_types import (
    HeadEvidence,
    HeadKey,
    HeadType,
    HeadTypes,
    Trust,
    head_evidence,
)
from normscope.network.settling.watchers import HeadWatcher, StateComparison, decoder_path, precision_of
from normscope.network.watching.block_lists import BlockList
from normscope.network.watching.hidden_states import Edge

USUAL = 2.0**10
"""The scale of the full text unless the climb asks for a larger one: the literature's 1000, made exact."""

LADDER = (2.0, 4.0, 8.0, 16.0, 32.0, 128.0, USUAL)
STRIDE = 2.0**7
"""From one scale to the next above the ladder: two decades."""

ABOVE = USUAL * STRIDE
"""Two decades above the usual scale."""

DECADES = 100.0
"""Something has settled if it stays the same while the scale grows by this factor."""

_HIGHEST = 2.0**80
_REGRESS = 0.02  # of a head's rows: more that were certain and are not now show the end of precision
_FEW = 4  # rows: fewer show nothing
_WELL_BELOW = 32.0  # from this factor below a scale on, a lasting type must show
_MOVED = 0.25  # of the queries: a smaller change may be one of a few rows of the sample
_RECENT = 0.1  # of the heads: if more settled less than two decades ago, the climb goes on
_OPEN = 0.1  # of a head's rows: with more unsettled ones, layers above it have no limit yet either


@dataclass(frozen=True)
class Climb:
    """What the sample showed at each scale, the plain network (scale 1) first."""

    scales: tuple[float, ...]
    cosines: Mapping[Edge, tuple[float, ...]]
    same: Mapping[Edge, tuple[bool, ...]]
    """Whether the layer's cosine at each scale is that of the last one."""
    evidence: tuple[Mapping[HeadKey, HeadEvidence], ...]
    trust: Mapping[HeadKey, Trust]

    def layer_settles_at(self, edge: Edge) -> float | None:
        """The scale from which the layer's cosine stays the same for two decades and more; None if none."""
        return self._first(lambda first: all(self.same[edge][first:]))

    def head_settles_at(self, key: HeadKey, types: HeadTypes) -> float | None:
        """The scale from which the head's type is certain and stays the same; None if there is none."""
        found = self.types_of(key, types)
        return self._first(lambda first: found[first] != "undecided" and len(set(found[first:])) == 1)

    def types_of(self, key: HeadKey, types: HeadTypes) -> list[HeadType]:
        """The head's type at each scale; undecided where it was not seen."""
        trust = self.trust[key]
        return [scale[key].type(types, trust)[0] if key in scale else "undecided" for scale in self.evidence]

    def types_at(self, scale: float, types: HeadTypes) -> dict[HeadKey, HeadType]:
        """The type of every head at one of the scales."""
        seen = self.evidence[self.scales.index(scale)]
        return {key: found.type(types, self.trust[key])[0] for key, found in seen.items()}

    def open_heads(self, scale: float, types: HeadTypes) -> list[HeadKey]:
        """The heads whose limit is not what one of the scales shows, or is not in sight there.

        They have many unsettled rows, or another type at the last scale, or still change at the last one.
        """
        seen = self.evidence[self.scales.index(scale)]
        kinds = self.types_at(scale, types)
        undecided = {key for key in seen if kinds[key] == "undecided"}
        unsettled = {key for key in undecided if seen[key].parts["settled"] < 1 - _OPEN}
        return [key for key in seen if key in unsettled or self.changes_after(scale, key, types)]

    def lasting_type(self, scale: float, key: HeadKey, types: HeadTypes) -> HeadType:
        """The type that estimates show from well below a scale to the last one; undecided if several.

        Rows that are not settled may keep a head from being certain although no scale shows it otherwise.
        """
        seen = [
            evidence[key].parts
            for at, evidence in zip(self.scales, self.evidence, strict=True)
            if at * _WELL_BELOW >= scale and key in evidence
        ]
        kinds = {types.name(parts["split"], parts["share"])[0] for parts in seen}
        changing = seen[-1]["growing"] > _OPEN or any(parts["lost"] > 0 for parts in seen)
        return kinds.pop() if len(kinds) == 1 and not changing else "undecided"

    def changes_after(self, scale: float, key: HeadKey, types: HeadTypes) -> bool:
        """Whether a head is another one at the last scale, or its scores still grow there unsaturated."""
        here, last = self.evidence[self.scales.index(scale)][key], self.evidence[-1].get(key)
        if last is None or here is last:
            return False
        kinds = [evidence.type(types, self.trust[key])[0] for evidence in (here, last)]
        differ = "undecided" not in kinds and kinds[0] != kinds[1]
        moved = max(abs(here.parts[name] - last.parts[name]) for name in ("split", "share"))
        return last.parts["growing"] > _OPEN or (differ and moved > _MOVED)

    def around(self, at: int, key: HeadKey) -> list[HeadEvidence]:
        """The evidence of a head at one of the scales, and at the next."""
        return [scale[key] for scale in self.evidence[at : at + 2] if key in scale]

    def _first(self, same: Callable[[int], bool]) -> float | None:
        high_enough = [i for i, scale in enumerate(self.scales) if self.scales[-1] >= DECADES * scale]
        return next((self.scales[i] for i in high_enough if same(i)), None)


class SampleRun:
    """Runs a sample at one scale after another; its plain pass stays in memory."""

    def __init__(
        self,
        model: nn.Module,
        scaling: ModelScale,
        batches: Sequence[Batch],
        lists: Sequence[BlockList],
        *,
        float64: bool,
    ) -> None:
        self._model, self._scaling, self._batches = model, scaling, batches
        self.states = StateComparison(model, lists)
        self.heads = HeadWatcher(model, lists, 0.0, every_row=True)
        self.scales: list[float] = []
        self.agreement = AgreementWatcher(model, decoder_path(lists))
        self.run(PLAIN, float64=float64, agree=True)

    def run(self, scale: float, *, float64: bool, agree: bool = False) -> None:
        """One pass over the sample at this scale, which replaces an earlier one.

        With `agree`, heads are compared with those of the plain network; once is enough.
        """
        watchers: list[Watcher] = [self.states, self.heads, *([self.agreement] if agree else [])]
        observer = self.heads.observer
        observer.epsilon = precision_of(self._model, float64)
        observer.before = max((other for other in self.scales if other < scale), default=None)
        observer.hard.pop(scale, None)
        for sums in self.states.sums.values():
            sums.pop(scale, None)
        self._scaling.set(scale)
        with in_float64(float64):
            for number, batch in enumerate(self._batches):
                views = [watcher.watching(number, batch, scale) for watcher in watchers]
                run_watched(self._model, batch, views)
        self.scales = sorted({*self.scales, scale})

    def try_to_run(self, scale: float, *, float64: bool) -> bool:
        """Run at this scale; False if the parameters or the states overflow, or rounding takes over."""
        try:
            self._scaling.check(scale)
        except ScaleOverflow:
            return False
        self.run(scale, float64=float64)
        if self.finite(scale) and not (float64 and self._blurred(scale)):
            return True
        self.scales.remove(scale)
        return False

    def finite(self, scale: float) -> bool:
        """Whether all states and scores at this scale are numbers."""
        means = [sums[scale].mean for sums in self.states.sums.values() if scale in sums]
        lost = any(bool(s.sums["lost"].any()) for s in self.heads.observer.hard.get(scale, {}).values())
        return all(map(math.isfinite, means)) and not lost

    def _blurred(self, scale: float) -> bool:
        """Whether some head has lost rows in rounding that were certain at the scale before."""
        for sums in self.heads.observer.hard.get(scale, {}).values():
            queries = float(sums.queries)
            allowed = max(_REGRESS * queries, min(_FEW, _OPEN * queries))
            if bool((sums.sums["blurred"] > allowed).any()):
                return True
        return False

    def evidence(self, scale: float) -> dict[HeadKey, HeadEvidence]:
        """What the sample shows of every head at one scale."""
        return dict(head_evidence(self.heads.observer.hard.get(scale, {})))

    def result(self, trust: Mapping[HeadKey, Trust], tolerance: float) -> Climb:
        """What was seen at the scales so far."""
        last = self.scales[-1]
        edges = [edge for edge, sums in self.states.sums.items() if last in sums]
        later = self.scales[1:]
        cosines = {edge: (1.0, *(self.states.sums[edge][scale].mean for scale in later)) for edge in edges}
        same = {
            edge: (
                abs(1.0 - cosines[edge][-1]) <= tolerance,
                *(self.states.change(edge, scale, last).within(tolerance) for scale in later),
            )
            for edge in edges
        }
        evidence = tuple(map(self.evidence, self.scales))
        known = {key: trust.get(key, Trust()) for scale in evidence for key in scale}
        return Climb(tuple(self.scales), cosines, same, evidence, known)


class Settings(Protocol):
    """What a climb depends on: the names of heads, and the tolerance of cosines."""

    @property
    def types(self) -> HeadTypes: ...  # noqa: D102
    @property
    def tolerance(self) -> float: ...  # noqa: D102


def climb_on(
    run: SampleRun,
    trust: Mapping[HeadKey, Trust],
    settings: Settings,
    *,
    float64: bool,
    bad: float = math.inf,
) -> None:
    """Climb above the ladder until everything has settled, or precision ends; `bad` is a scale too large."""
    while _asks_for_more(run.result(trust, settings.tolerance), settings, below=math.isfinite(bad)):
        good = run.scales[-1]
        scale = good * STRIDE if math.isinf(bad) else 2.0 ** ((math.log2(good) + math.log2(bad)) // 2)
        if scale > _HIGHEST or scale <= good:
            break
        if not run.try_to_run(scale, float64=float64):
            bad = scale


def _asks_for_more(found: Climb, settings: Settings, *, below: bool) -> bool:
    """Whether a larger scale could settle a soft head, or show that heads which have settled stay so.

    `below` a scale that failed, any head or layer asks for more. Layers whose heads have settled are checked
    on more text than this; without heads they decide alone.
    """
    layers = found.cosines if below or not found.evidence[-1] else ()
    if any(found.layer_settles_at(edge) is None for edge in layers):
        return True
    last = found.evidence[-1]
    open_ = [key for key in last if found.head_settles_at(key, settings.types) is None]
    soft = [key for key in open_ if last[key].parts["soft"] > 0]
    return bool(soft) or len(open_) > (0 if below else _RECENT * len(last))
