"""All rules over one run: the most urgent advice first, what could not be judged last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from normscope.errors import SeriesError
from normscope.theory.advice.advice_result import SEVERITIES, Advice, AdviceList, Judgement
from normscope.theory.advice.broken_runs import non_finite, unmoved, unsound
from normscope.theory.advice.departing_layers import departing
from normscope.theory.advice.effective_rate import idle_end, slowing
from normscope.theory.advice.growth_outlook import alignment, fast_growth
from normscope.theory.advice.lost_gradients import vanished
from normscope.theory.advice.missing_decay import undecayed, weak_decay
from normscope.theory.advice.network_signs import hardened_heads, saturated_layers
from normscope.theory.advice.norm_course import fallen, jumped, no_norm
from normscope.theory.advice.rest_points import rest
from normscope.theory.advice.run_evidence import FEWEST_POINTS, RunEvidence
from normscope.theory.measures.series_sources import Selection, Source, opened_run, refuse_measure
from normscope.theory.places.recorded_norms import has_only_norms

Rule = Callable[[RunEvidence], Judgement]

#: Every rule, in the order in which a person would ask.
RULES: Mapping[str, Rule] = {
    "unsound": unsound,
    "nonfinite": non_finite,
    "no-norm": no_norm,
    "jump": jumped,
    "unmoved": unmoved,
    "vanished": vanished,
    "fallen": fallen,
    "rest": rest,
    "undecayed": undecayed,
    "weak-decay": weak_decay,
    "slowing": slowing,
    "idle": idle_end,
    "layer": departing,
    "fast-growth": fast_growth,
    "aligned": alignment,
    "heads": hardened_heads,
    "saturated": saturated_layers,
}


def advise(
    source: Source,
    *,
    measure: str | None = None,
    scope: str | None = None,
    stage: str | None = None,
    since: int = 0,
    until: int | None = None,
) -> AdviceList:
    """What a careful colleague would say about a training run: each sentence with its evidence.

    `source`, `scope`, `stage`, `since` and `until` are as in `series`; `measure` names the column of a log.
    A run that a monitor recorded allows every rule, norms alone only some; what cannot be judged is said in
    `unknown`. If nothing has to be done, the first sentence says so, and what was checked.

    >>> import normscope as ns
    >>> found = ns.advise("t5-base")
    >>> found.sentences[0].partition(":")[0]
    'Nothing is certain enough to act on, as far as norms alone can tell'
    """
    with opened_run(source) as run:
        if run is not None:
            refuse_measure(run, measure, "advice about a run uses all its measures")
        chosen = Selection(measure, "total", scope, stage, since, until)
        if run is not None and has_only_norms(run):
            return judge(RunEvidence(run.path, None, chosen))
        return judge(RunEvidence(source, run, chosen))


def judge(known: RunEvidence) -> AdviceList:
    """The advice of every rule, in order, or that nothing needs doing."""
    if len(known.norms) < FEWEST_POINTS:
        raise SeriesError(
            f"{known.norms.name}: {len(known.norms)} points; advice needs the norm at {FEWEST_POINTS} or more"
        )
    judged = [rule(known) for rule in RULES.values()]
    found = sorted((each for one in judged for each in one.advice), key=_urgency)
    if not any(each.severity != "fine" for each in found):
        found.insert(0, _nothing(known, judged))
    return AdviceList(
        source=known.name,
        last_step=known.now,
        advice=tuple(found),
        unknown=tuple(one.unknown for one in judged if one.unknown),
        scope=known.norms.scope,
        findings=known.findings,
    )


def _urgency(each: Advice) -> tuple[int, float]:
    return SEVERITIES.index(each.severity), -each.size


def _nothing(known: RunEvidence, judged: Sequence[Judgement]) -> Advice:
    """That nothing needs doing, with everything that was checked.

    It is as sure as the share of the rules that had their data, times 1 − the largest doubt of any; below
    one half, a rule was near to speaking or most could not judge, and the sentence is weaker.
    """
    checked = [one.checked for one in judged if one.checked]
    able = sum(bool(one.checked or one.advice) for one in judged)
    unable = sum(one.missing for one in judged)
    doubt = max(one.doubt for one in judged)
    whence = "" if known.run is not None else ", as far as norms alone can tell"
    evidence: dict[str, float | str] = {"checked": able, "not_checked": unable, "doubt": doubt}
    sure = (1.0 - doubt) * able / max(able + unable, 1)
    start = "Nothing needs doing" if sure >= 0.5 else "Nothing is certain enough to act on"
    said = f"{start}{whence}: {'; '.join(checked)}."
    return Advice("nothing", said, evidence, sure, known.command("show"), "fine")
