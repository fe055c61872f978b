"""A run in a few numbers: what was measured, what was left out, and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from normscope.anatomy import in_body, unknown_tensors
from normscope.remarks import UNCOUNTED, Finding, LeftOut, unsound_sentence
from normscope.run import Run, TensorRow
from normscope.run_files.gone_checkpoints import another_start, two_starts, uncompared
from normscope.run_files.recorded_columns import recorded
from normscope.theory.measures.constant_tensors import (
    constant_groups,
    constant_sentences,
    constant_tensors,
    percent,
)
from normscope.theory.measures.measures import group
from normscope.words import some

SHOWN = 3  # names quoted in a sentence before "and N more"
LOOSE = 0.01  # of the largest network: parameters beside the networks, such as a learned temperature
STACKS = frozenset({"encoder", "decoder", "model"})  # parts of one network


@dataclass(frozen=True)
class StageSummary:
    """One stage: its steps, and the norm of the body and of all parameters at both ends.

    `scope` says what the first two norms are about: the body, or everything if there is no body.
    """

    stage: str
    checkpoints: int
    first_step: int
    last_step: int
    norm_first: float
    norm_last: float
    norm_all_first: float
    norm_all_last: float
    scope: str = "body"


@dataclass(frozen=True)
class ComponentSummary:
    """One of several networks of a stage: the norm of all its parameters at both ends."""

    stage: str
    component: str
    parameters: int
    norm_first: float
    norm_last: float


@dataclass(frozen=True)
class SkippedTensor:
    """A tensor that is not measured, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Summary:
    """The contents of a run file; `warnings` are sentences for the user.

    `headlines` are what must not be missed: constants that hold much of the norm, an unsound series,
    several networks in one sum, checkpoints and quantised weights that are left out.
    """

    run: str
    source: str
    complete: bool
    tensors: int
    tied: int
    parameters: int
    skipped: int
    unknown_names: int
    unknown_share: float
    nonfinite: int
    stages: tuple[StageSummary, ...]
    components: tuple[ComponentSummary, ...]
    skipped_tensors: tuple[SkippedTensor, ...]
    left_out: tuple[LeftOut, ...]
    findings: tuple[Finding, ...]
    headlines: tuple[str, ...]
    warnings: tuple[str, ...]


def summarise(run: Run) -> Summary:
    """Sum up a run file."""
    return run.remembered("summary", lambda: _summarise(run))


def _summarise(run: Run) -> Summary:
    tensors = run.tensors()
    counted = [tensor for tensor in tensors if tensor.tied_to is None]
    unknown = run.meta.get("unknown_names", [tensor.name for tensor in unknown_tensors(counted)])
    stages = run.stages()
    sumsq = _last_sumsq(run, counted, stages)
    unknown_share = _unknown_share(counted, unknown, sumsq)
    components = tuple(part for stage in stages for part in _components(run, stage))
    left_out, findings = run.left_out(), run.findings()
    nonfinite = _most_nonfinite(run, stages)
    large, small = _constants(run, counted, sumsq)
    remarks = [*uncompared(run), *_networks(components), *_left_out_sentences(left_out)]
    unsound = unsound_sentence(findings)
    uncounted = [note for note in run.meta.get("notes", []) if UNCOUNTED in note]
    return Summary(
        run=str(run.path),
        source=str(run.meta.get("source", "")),
        complete=bool(run.meta.get("complete", True)),
        tensors=len(counted),
        tied=len(tensors) - len(counted),
        parameters=sum(tensor.numel for tensor in counted),
        skipped=len(run.skipped()),
        unknown_names=len(unknown),
        unknown_share=unknown_share,
        nonfinite=nonfinite,
        stages=tuple(_stage(run, stage) for stage in stages),
        components=components,
        skipped_tensors=tuple(SkippedTensor(name, reason) for name, reason in run.skipped().items()),
        left_out=tuple(left_out),
        findings=tuple(findings),
        headlines=(*large, *uncounted, *([unsound] if unsound else []), *remarks),
        warnings=(*large, *remarks, *_warnings(run, unknown, unknown_share, nonfinite), *small),
    )


def _most_nonfinite(run: Run, stages: Iterable[str]) -> int:
    """The largest number of values at one step that are not finite."""
    if not any(recorded(run, stage).nonfinite for stage in stages):
        return 0
    (most,) = run.query(
        "SELECT coalesce(max(n), 0) FROM (SELECT sum(nonfinite) n FROM weight "
        "JOIN tensor ON tensor.id = weight.tensor WHERE tied_to IS NULL GROUP BY step)"
    )[0]
    return int(most)


def _stage(run: Run, stage: str) -> StageSummary:
    body, everything = (group(run, scope=scope, stage=stage) for scope in ("body", "all"))
    norm, norm_all = (g.measure("norm")[:, 0] for g in (body, everything))
    (count,) = run.query("SELECT count(*) FROM checkpoint WHERE stage = ?", (stage,))[0]
    return StageSummary(
        stage=stage,
        checkpoints=count or len(body.steps),
        first_step=int(body.steps[0]),
        last_step=int(body.steps[-1]),
        norm_first=float(norm[0]),
        norm_last=float(norm[-1]),
        norm_all_first=float(norm_all[0]),
        norm_all_last=float(norm_all[-1]),
        scope=body.scope,
    )


def _components(run: Run, stage: str) -> list[ComponentSummary]:
    """The networks of a stage; none if there is only one. Encoder and decoder are parts of one network."""
    parts = group(run, by="component", scope="all", stage=stage)
    if len(parts.groups) < 2 or set(parts.groups) <= STACKS:
        return []
    norms = parts.measure("norm")
    return [
        ComponentSummary(stage, name, int(parts.numel[i]), float(norms[0, i]), float(norms[-1, i]))
        for i, name in enumerate(parts.groups)
    ]


def _last_sumsq(run: Run, tensors: Iterable[TensorRow], stages: Iterable[str]) -> dict[str, dict[str, float]]:
    """For each stage, the ‖θ‖² of each tensor at its last step, by name.

    NaN is left out of sums, so that a step with NaN says nothing about shares: an earlier one does.
    """
    names = {tensor.id: tensor.name for tensor in tensors}
    sql = (
        "SELECT tensor.id, sumsq FROM tensor CROSS JOIN weight "
        "ON stage = ? AND weight.tensor = tensor.id AND step = ?"
    )
    rows = {stage: run.query(sql, (stage, _last_finite_step(run, stage))) for stage in stages}
    return {
        stage: {names[tensor]: sumsq or 0.0 for tensor, sumsq in found if tensor in names}
        for stage, found in rows.items()
    }


def _last_finite_step(run: Run, stage: str) -> int:
    """The last step of a stage at which all values are finite; the last step if there is none."""
    every = "SELECT max(step) FROM weight WHERE stage = ?"
    if not recorded(run, stage).nonfinite:
        return int(run.query(every, (stage,))[0][0])
    finite = "SELECT step FROM weight WHERE stage = ? GROUP BY step HAVING sum(nonfinite) = 0"
    sql = f"SELECT coalesce((SELECT max(step) FROM ({finite})), ({every}))"
    return int(run.query(sql, (stage, stage))[0][0])


def _unknown_share(
    tensors: Iterable[TensorRow], unknown: Iterable[str], sumsq: Mapping[str, Mapping[str, float]]
) -> float:
    """The largest share that unknown names have in the ‖θ‖² of the body of a stage."""
    body = {tensor.name for tensor in tensors if in_body(tensor.role, tensor.shape)}
    found = [0.0]
    for values in sumsq.values():
        total = sum(values.get(name, 0.0) for name in body)
        found.append(sum(values.get(name, 0.0) for name in body & set(unknown)) / total if total else 0.0)
    return max(found)


def _left_out_sentences(left_out: Iterable[LeftOut]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for each in left_out:
        reasons.setdefault(each.reason, []).append(each.label)
    return [
        f"{some(labels, SHOWN)} {'is' if len(labels) == 1 else 'are'} left out: {reason}"
        for reason, labels in reasons.items()
    ]


def _constants(
    run: Run, tensors: Iterable[TensorRow], sumsq: Mapping[str, Mapping[str, float]]
) -> tuple[list[str], list[str]]:
    """Sentences about tensors that never change: those to be said first, and the others."""
    names = constant_tensors(run)
    shares = dict.fromkeys((tensor.name for tensor in tensors), 0.0)
    if names and len(names) == len(shares):
        return ["no tensor ever changes: all checkpoints have the same weights"], []
    for values in sumsq.values():
        total = sum(values.values())
        for name, value in values.items():
            shares[name] = max(shares[name], value / total if total else 0.0)
    return constant_sentences(constant_groups(names, shares))


def _networks(components: Iterable[ComponentSummary]) -> list[str]:
    listed = list(components)
    names = list(dict.fromkeys(each.component for each in listed))
    largest = max((each.parameters for each in listed), default=0)
    rest = {e.component for e in listed if e.component == "model" and e.parameters < LOOSE * largest}
    networks = [name for name in names if name not in rest]
    if not networks:
        return []
    count = f"{len(networks)} networks are"
    others = ", and parameters outside them ('model')" if rest else ""
    return [f"{count} in one file ({some(networks)}){others}: the totals add them up"]


def _warnings(run: Run, unknown: list[str], share: float, nonfinite: int) -> list[str]:
    warnings = [*run.meta.get("notes", []), *another_start(run), *two_starts(run)]
    if not run.meta.get("complete", True):
        warnings.append("the scan did not finish: run it again to continue")
    if unknown:
        one = len(unknown) == 1
        belong, hold = (
            ("1 name belongs", "it holds") if one else (f"{len(unknown)} names belong", "they hold")
        )
        warnings.append(
            f"{belong} to no known model family: {some(unknown, SHOWN)}; "
            f"{hold} {percent(share)} of the body's ‖θ‖²"
        )
    if apart := run.meta.get("differing", []):
        reason = run.skipped().get(apart[0], "")
        tensors = "1 tensor is" if len(apart) == 1 else f"{len(apart)} tensors are"
        warnings.append(f"{tensors} not the same in all checkpoints: left out ({apart[0]}: {reason})")
    if nonfinite:
        warnings.append(f"NaN or infinite values (up to {nonfinite} at one step): left out of the sums")
    for alarms in run.artifacts("alarm").values():
        warnings += [f"step {alarm['step']}: {alarm['message']}" for alarm in alarms]
    return warnings
