"""Measure the full text as a plan says, and see what is certain of every layer and head."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torch import nn

from normscope.errors import UsageError
from normscope.network.attention.patterns import attends, head_patterns
from normscope.network.running.batches import Batch, sample
from normscope.network.running.eval_mode import evaluating
from normscope.network.running.passes import PLAIN, Passes, Watcher, part_of, run_passes
from normscope.network.running.scaling import power_of_two
from normscope.network.running.token_ids import separator_ids
from normscope.network.settling.head_types import (
    HeadEvidence,
    HeadKey,
    HeadType,
    HeadTypes,
    Trust,
    head_evidence,
)
from normscope.network.settling.text_plan import Subject, TextPlan, plan_for
from normscope.network.settling.watchers import HeadWatcher, StateComparison, precision_of
from normscope.network.watching.block_lists import BlockList, block_of, find_blocks, state_note
from normscope.network.watching.hidden_states import Edge
from normscope.option_checks import check_kind, check_number
from normscope.progress import Progress


@dataclass(frozen=True)
class Limit:
    """How the limit c → ∞ is taken.

    Without `scales`, a few sentences are run in float64 at rising scales until layers and heads no longer
    change; the full text is then measured once, at 2^10 or the larger scale they need. With `scales`, the
    full text is measured at each of them; the first is reported and the others check it. A layer has
    `converged` if its mean cosines differ by at most `tolerance` while the scale grows a hundredfold
    (or at all given scales).

    >>> ns.Limit().scales
    ()
    >>> ns.Limit(scales=(2.0**12,), tolerance=0.02).scales
    (4096.0,)
    """

    scales: tuple[float, ...] = ()
    tolerance: float = 0.01

    def __post_init__(self) -> None:
        check_kind("scales", self.scales, (tuple, list), "a tuple of powers of two")
        object.__setattr__(self, "scales", tuple(self.scales))
        check_number("tolerance", self.tolerance, 0)
        wrong = [scale for scale in self.scales if power_of_two(scale) <= 0]
        if wrong or len(set(self.scales)) < len(self.scales):
            raise UsageError(
                f"the scales of a limit must be different powers of two above 1, such as (1024, 16384); "
                f"got {self.scales}"
            )


@dataclass(frozen=True)
class Request:
    """What is asked for: the limit, the names of heads, and whether states and heads are watched."""

    limit: Limit = field(default_factory=Limit)
    types: HeadTypes = field(default_factory=HeadTypes)
    layers: bool = True
    heads: bool = True
    blocks: str | None = None

    @property
    def tolerance(self) -> float:
        """The tolerance of cosines."""
        return self.limit.tolerance


@dataclass(frozen=True)
class Measured:
    """The watchers after the passes over the full text, and the plan they followed."""

    request: Request
    plan: TextPlan
    lists: Sequence[BlockList]
    states: StateComparison
    heads: HeadWatcher

    @property
    def scale(self) -> float:
        """The scale that is reported."""
        return self.plan.scales[0]

    def evidence(self) -> dict[HeadKey, HeadEvidence]:
        """What the full text shows of every head at the reported scale."""
        return dict(head_evidence(self.heads.observer.hard.get(self.scale, {})))

    def soft(self, key: HeadKey) -> dict[str, float]:
        """What the plain network shows of a head."""
        for (name, first), sums in self.heads.observer.soft.items():
            if name == key[0] and 0 <= key[1] - first < len(sums.sums["largest"]):
                return {measure: float(sums.mean(measure)[key[1] - first]) for measure in sums.sums}
        raise KeyError(key)

    def patterns(self) -> dict[HeadKey, dict[str, Any]]:
        """Where every head attends, in the plain network and at the reported scale."""
        tally = self.heads.observer.tally
        if tally is None:
            return {}
        soft, hard = head_patterns(tally, PLAIN), head_patterns(tally, self.scale)
        return {key: attends(soft.get(key), hard.get(key)) for key in soft}

    def type_of(self, key: HeadKey, found: HeadEvidence) -> tuple[HeadType, float]:
        """The head's type and margin, by the full text."""
        types = self.request.types
        if key in self._unreached:
            return "undecided", 0.0
        trust = self.plan.trust.get(key, Trust())
        kind, margin = found.type(types, replace(trust, ties=trust.ties or self.plan.float64))
        estimate = types.name(found.parts["split"], found.parts["share"])
        if kind == "undecided" and estimate[0] == self._lasting.get(key):
            return estimate
        return kind, margin

    @cached_property
    def _lasting(self) -> dict[HeadKey, HeadType]:
        """The types that float64 shows at every scale around the reported one, where all was run in it."""
        climb = self.plan.climb
        if climb is None or not self.plan.all_float64:
            return {}
        return {key: climb.lasting_type(self.scale, key, self.request.types) for key in climb.trust}

    @cached_property
    def _unreached(self) -> set[HeadKey]:
        """Heads that are others at the climb's last scale, or still change there; and all behind these."""
        climb, types = self.plan.climb, self.request.types
        if climb is None:
            return set()
        keys = climb.evidence[climb.scales.index(self.scale)].keys()
        first = {key for key in keys if climb.changes_after(self.scale, key, types)}
        calls = {key[0] for key in first}
        return first | {key for key in keys if any(self._behind(key[0], call) for call in calls)}

    def _behind(self, call: str, other: str) -> bool:
        """Whether an attention call is in a later layer, or a later list, than another."""
        one, two = (block_of(self.lists, name.partition("#")[0]) for name in (call, other))
        if one is None or two is None or one[0].path == two[0].path:
            return layer_of(call, self.lists) > layer_of(other, self.lists)
        paths = [blocks.path for blocks in self.lists]
        return paths.index(one[0].path) > paths.index(two[0].path)

    def head_settles_at(self, key: HeadKey) -> float | None:
        """The scale from which the sample's type of this head stays the same."""
        climb = self.plan.climb
        return climb.head_settles_at(key, self.request.types) if climb and key in climb.trust else None

    def layer_settles_at(self, edge: Edge) -> float | None:
        """The scale from which the layer stays the same; None if a head before it is still open."""
        climb = self.plan.climb
        if climb is None or edge not in climb.cosines or self.open_before(edge):
            return None
        return climb.layer_settles_at(edge)

    def layer_converged(self, edge: Edge) -> bool | None:
        """Whether the limit was reached; None if a single given scale cannot tell."""
        sums, given, tolerance = self.states.sums[edge], self.request.limit.scales, self.request.tolerance
        if len(given) == 1:
            return None
        finite = all(math.isfinite(one.mean) for one in sums.values())
        if not finite or self.open_before(edge):
            return False
        if given:
            means = [sums[scale].mean for scale in given]
            return max(means) - min(means) <= tolerance
        if self.plan.check is None:
            return self.layer_settles_at(edge) is not None
        if sums[self.plan.check].tokens == sums[self.scale].tokens:
            return abs(sums[self.plan.check].mean - sums[self.scale].mean) <= tolerance
        return self.states.changes[edge][self.scale, self.plan.check].within(tolerance)

    def open_before(self, edge: Edge) -> list[HeadKey]:
        """The heads before a layer whose limit the sample does not show."""
        climb = self.plan.climb
        if climb is None:
            return []
        open_ = climb.open_heads(self.scale, self.request.types)
        return [key for key in open_ if self._feeds(key[0], edge)]

    def _feeds(self, call: str, edge: Edge) -> bool:
        """Whether an attention call comes before an edge: in a layer up to it, or in an earlier list."""
        position = block_of(self.lists, call.partition("#")[0])
        paths = [blocks.path for blocks in self.lists]
        if position is None or position[0].path == edge.path or edge.path not in paths:
            return layer_of(call, self.lists) <= edge.layer
        return paths.index(position[0].path) < paths.index(edge.path) and edge.layer > 0


def measure(model: nn.Module, batches: Sequence[Batch], request: Request, progress: Progress) -> Measured:
    """TextPlan on a sample, then pass the full text through the plain and the scaled network."""
    with evaluating(model):
        lists = find_blocks(model, sample(batches), pattern=request.blocks)
        subject = Subject(model, batches, lists)
        plan = _plan(subject, request, part_of(progress, 0, 10))
        rest = _rest_of(progress)
        found = _pass(subject, request, plan, rest)
        if not plan.float64 and plan.climb is not None and any(_would_help(found)):
            found = _pass(subject, request, replace(plan, float64=True), rest)
    return found


def _plan(subject: Subject, request: Request, progress: Progress) -> TextPlan:
    """The plan of the full text; one scale of layers alone has nothing to check, and needs no sample."""
    limit = request.limit
    if len(limit.scales) == 1 and not request.heads and not subject.small:
        return TextPlan(limit.scales, False)
    return plan_for(subject, limit.scales, request, progress)


def _rest_of(progress: Progress) -> Progress:
    """The last nine tenths of a progress, after the sample."""

    def report(done: float, total: float, note: str) -> None:
        progress(1 + 9 * (done / total if total else 0), 10, note)

    return report


def _pass(subject: Subject, request: Request, plan: TextPlan, progress: Progress) -> Measured:
    model, lists = subject.model, subject.lists
    states = StateComparison(model, lists)
    separators = separator_ids(getattr(model, "config", None)).union(
        *(batch.separators for batch in subject.batches)
    )
    epsilon = precision_of(model, plan.float64)
    heads = HeadWatcher(model, lists, epsilon, without=plan.check, separators=separators)
    watchers: list[Watcher] = [*([states] if request.layers else []), *([heads] if request.heads else [])]
    check = plan.check if request.layers else None
    passes = Passes(plan.scales, check, everywhere=subject.small, float64=plan.float64)
    run_passes(model, subject.batches, passes, watchers, progress)
    return Measured(request, plan, lists, states, heads)


def _would_help(found: Measured) -> Iterator[bool]:
    """For each head: whether it is undecided in the model's own dtype, and decided in float64."""
    climb = found.plan.climb
    if climb is None or not any(trust.ties for trust in climb.trust.values()):
        return
    decided = climb.types_at(found.scale, found.request.types)
    for key, evidence in found.evidence().items():
        unknown = found.type_of(key, evidence)[0] == "undecided"
        yield unknown and decided.get(key, "undecided") != "undecided"


def layer_of(name: str, lists: Sequence[BlockList]) -> int:
    """The layer of an attention call, from 1; each turn of a shared block is a layer, 0 is outside all."""
    module, _, turn = name.partition("#")
    position = block_of(lists, module)
    if position is None:
        return 0
    blocks, index = position
    return (int(turn or 1) - 1) * len(blocks.blocks) + index + 1


def plain_warnings(found: Measured) -> Iterator[str]:
    """What is wrong with the network as it is, before any scaling; what could not be seen of it."""
    broken = found.states.broken
    if broken:
        first = min(broken, key=lambda edge: (edge.path, edge.layer))
        yield (
            f"the model itself, unscaled, already gives NaN or infinite states, from {first.module} on: look "
            "at its weights and inputs (a row that sees no position at all?); nothing can be said about its "
            "limit"
        )
    if note := state_note(found.lists):
        yield note
