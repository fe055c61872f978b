"""Decide on a sample how the full text is measured: at which scale, and whether in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from torch import nn

from normscope.errors import ScaleOverflow
from normscope.network.attention.agreement import Agreement
from normscope.network.running.batches import Batch, position_count, some_rows
from normscope.network.running.passes import PLAIN
from normscope.network.running.precision import no_float64
from normscope.network.running.scaling import ModelScale, rising
from normscope.network.settling.climb import ABOVE, LADDER, USUAL, Climb, SampleRun, Settings, climb_on
from normscope.network.settling.head_types import HeadEvidence, HeadKey, HeadTypes, Trust
from normscope.network.watching.block_lists import BlockList
from normscope.progress import Progress, silent

_SMALL = 2.0**32
"""Parameters times positions: with fewer, all is measured in float64 at once."""
_SAMPLE_WORK = 2.0**31
"""Parameters times positions of the sample."""
_SAMPLE = (64, 512)
"""The least and the most positions of the sample."""
_SAME = 0.02
"""How far the share of splitting queries may be off in the model's own precision."""


@dataclass(frozen=True)
class TextPlan:
    """The scales and the precision for the full text, and what the sample showed about them."""

    scales: tuple[float, ...]
    float64: bool
    check: float | None = None
    """A second scale, for layers on a part of the text."""
    climb: Climb | None = None
    trust: Mapping[HeadKey, Trust] = field(default_factory=dict)
    agreement: Mapping[HeadKey, Agreement] = field(default_factory=dict)
    all_float64: bool = False
    """Whether the sample was run in float64 at every scale."""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subject:
    """What is measured: a model, its batches, and its blocks."""

    model: nn.Module
    batches: Sequence[Batch]
    lists: Sequence[BlockList]

    @property
    def parameters(self) -> int:
        """The number of its parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def small(self) -> bool:
        """Whether all of it can be run in float64 without a thought."""
        return self.parameters * sum(map(position_count, self.batches)) <= _SMALL

    def sample(self) -> list[Batch]:
        """A few rows of the batches; fewer of a larger model."""
        least, most = _SAMPLE
        return some_rows(self.batches, int(min(max(_SAMPLE_WORK / max(self.parameters, 1), least), most)))


class _Planner:
    """Runs the sample and judges it."""

    def __init__(self, subject: Subject, scaling: ModelScale, settings: Settings, progress: Progress) -> None:
        self._subject, self._scaling = subject, scaling
        self._settings, self._progress = settings, progress
        self.wide = True
        self.remarks, self.too_large = list[str](), list[str]()
        if reason := no_float64(subject.model):
            self._no_float64(reason)
        self.all_wide = self.wide and subject.small
        self.run = self._first_run()
        self.own_is_enough = self.can_check = False
        self.judged = PLAIN
        self.ties: dict[HeadKey, Trust] = {}

    def _first_run(self) -> SampleRun:
        model, sample, lists = self._subject.model, self._subject.sample(), self._subject.lists
        if self.all_wide:
            try:
                return SampleRun(model, self._scaling, sample, lists, float64=True)
            except Exception as error:  # the model has run in its own dtype: something in it refuses float64
                self._no_float64(_first_line(error))
        return SampleRun(model, self._scaling, sample, lists, float64=False)

    def _no_float64(self, reason: str) -> None:
        self.wide = self.all_wide = False
        self.remarks.append(
            f"the model cannot be run in float64 ({reason}), so heads whose scores tie are undecided"
        )

    def go_to(self, scales: Sequence[float], judged: float) -> None:
        """Run the sample at the scales; the judged one in both precisions, to see whether they agree."""
        self.judged = judged
        for done, scale in enumerate(scales):
            self._progress(done, len(scales), f"sample scaled by {scale:g}")
            self.run.run(scale, float64=self.all_wide, agree=scale == judged and self.all_wide == self.wide)
        if self.all_wide:
            self.ties = {key: Trust(ties=True) for key in self.run.evidence(judged)}
        elif self.wide:
            self._compare(judged)

    def judge_again(self, scale: float) -> None:
        """Judge another scale, at which the sample was run before."""
        if self.wide and not self.all_wide and self.can_check and scale == ABOVE:  # in the model's own dtype
            self.judged = scale
            self._compare(scale)
        else:
            self.go_to((scale,), scale)

    def _compare(self, scale: float) -> None:
        """Run one scale in float64 too, and see what is the same."""
        own = self.run.evidence(scale)
        before = {edge: sums[scale].mean for edge, sums in self.run.states.sums.items()}
        try:
            self.run.run(scale, float64=True, agree=True)
        except Exception as error:  # the model has run in its own dtype: something in it refuses float64
            self._no_float64(_first_line(error))
            self.run.run(scale, float64=False, agree=True)
            return
        true = self.run.evidence(scale)
        self.ties = {key: Trust(ties=_alike(own.get(key), found)) for key, found in true.items()}
        near = self._settings.tolerance / 10
        same = [abs(sums[scale].mean - before[edge]) <= near for edge, sums in self.run.states.sums.items()]
        self.own_is_enough = all(same) and all(
            self._no_other_type(own.get(key), found, self.ties[key]) for key, found in true.items()
        )

    def _no_other_type(self, own: HeadEvidence | None, true: HeadEvidence, trust: Trust) -> bool:
        """Whether the model's own precision gives a head the type that float64 gives it, or leaves it open.

        A head that the full text leaves open too is measured again in float64.
        """
        types = self._settings.types
        kinds = {true.type(types, Trust(ties=True))[0], own.type(types, trust)[0] if own else "undecided"}
        return len(kinds - {"undecided"}) < 2

    def climb(self) -> Climb:
        """Climb the ladder, two decades above the usual scale, and on where something has not settled."""
        usable = [*LADDER, ABOVE] if self._fits(ABOVE) else list(takewhile(self._fits, LADDER))
        if not usable:
            self._scaling.check(LADDER[0])
        ladder = [scale for scale in usable if scale in LADDER]
        self.go_to(ladder, ladder[-1])
        if bad := self._come_down():
            climb_on(self.run, self.ties, self._settings, float64=self.wide, bad=bad)
        elif usable[-1] == ABOVE and self.run.finite(USUAL):
            self.can_check = self.run.try_to_run(ABOVE, float64=self.all_wide)
            if not self.can_check and self.wide and not self.all_wide:
                self.run.try_to_run(ABOVE, float64=True)
            climb_on(self.run, self.ties, self._settings, float64=self.wide)
        return self.result()

    def _come_down(self) -> float | None:
        """Drop the highest scales if states are not finite there but are below; the lowest of those dropped.

        A network may write exp without subtracting the maximum, or take it of a parameter (Mamba).
        """
        tried = [scale for scale in self.run.scales if scale != PLAIN]
        good = next((scale for scale in reversed(tried) if self._finite(scale)), None)
        if good is None or good == tried[-1]:
            return None
        bad = min(scale for scale in tried if scale > good)
        self.run.scales = [scale for scale in self.run.scales if scale <= good]
        self.too_large = [
            f"scales of {bad:g} and above were not used: states or attention scores are not finite there"
        ]
        return bad

    def _finite(self, scale: float) -> bool:
        """Whether all numbers at this scale are finite, at least in float64."""
        if not self.run.finite(scale) and self.wide and not self.all_wide and scale != self.judged:
            self.run.run(scale, float64=True)
        return self.run.finite(scale)

    def result(self) -> Climb:
        """What the sample has shown so far."""
        return self.run.result(self.ties, self._settings.tolerance)

    def _fits(self, scale: float) -> bool:
        try:
            self._scaling.check(scale)
        except ScaleOverflow as error:
            self.too_large = [f"scales of {scale:g} and above were not tried: {error}"]
            return False
        return True


def plan_for(
    subject: Subject, scales: Sequence[float], settings: Settings, progress: Progress = silent
) -> TextPlan:
    """Run a sample, and say how the full text is to be measured.

    Without scales, the sample climbs until nothing changes, and the scale for the full text is chosen.
    """
    with rising(subject.model) as scaling:
        for scale in scales:
            scaling.check(scale)
        planner = _Planner(subject, scaling, settings, progress)
        if scales:
            planner.go_to(sorted(scales), scales[0])
            found, chosen = planner.result(), tuple(scales)
        else:
            found = planner.climb()
            chosen = (_scale_for(found, settings.types),)
            if chosen[0] != planner.judged:
                planner.judge_again(chosen[0])
                found = planner.result()
    at = found.scales.index(chosen[0])
    trust = {
        key: replace(planner.ties.get(key, Trust()), soft=max(map(_stay, found.around(at, key))))
        for key in found.evidence[at]
    }
    float64 = planner.wide and not planner.own_is_enough
    check = ABOVE if planner.can_check and chosen == (USUAL,) else None
    remarks = (*planner.remarks, *planner.too_large)
    agreement, wide = planner.run.agreement.result(), planner.all_wide
    return TextPlan(chosen, float64, check, found, trust, agreement, wide, remarks)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _alike(own: HeadEvidence | None, true: HeadEvidence) -> bool:
    """Whether a head splits as many queries over as many positions in both precisions."""
    return own is not None and all(
        abs(own.parts[name] - true.parts[name]) <= _SAME for name in ("split", "share")
    )


def _stay(found: HeadEvidence) -> float:
    """The share of a head's soft rows that are as they were at the scale before."""
    known, soft = found.parts["known"], found.parts["soft"]
    return known / (known + soft) if known else 0.0


def _scale_for(found: Climb, types: HeadTypes) -> float:
    """The usual scale, or the first larger one that leaves fewer heads open, or layers if no head is seen.

    Larger by two decades at least: just above the usual scale lies the end of precision, if anything.
    """
    scales = [s for s in found.scales if s == USUAL or s >= ABOVE] or [found.scales[-1]]

    def left_open(scale: float) -> int:
        if found.evidence[-1]:
            return len(found.open_heads(scale, types))
        at = found.scales.index(scale)
        return sum(not same[at] for same in found.same.values())

    return min(scales, key=left_open)
