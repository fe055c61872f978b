"""A run in a few numbers: what was measured, what was left out, and warnings."""

from __future__ import annotations

from dataclasses import dataclass

from normscope.run import Run
from normscope.theory.measures.measures import group
from normscope.words import some

SHOWN = 3  # names quoted in a sentence before "and N more"


@dataclass(frozen=True)
class StageSummary:
    """One stage: its steps, and the norm of the body and of all parameters at both ends."""

    stage: str
    checkpoints: int
    first_step: int
    last_step: int
    norm_first: float
    norm_last: float
    norm_all_first: float
    norm_all_last: float


@dataclass(frozen=True)
class Summary:
    """The contents of a run file; `warnings` are sentences for the user."""

    run: str
    source: str
    complete: bool
    tensors: int
    tied: int
    parameters: int
    skipped: int
    unknown_names: int
    nonfinite: int
    stages: tuple[StageSummary, ...]
    warnings: tuple[str, ...]


def summarise(run: Run) -> Summary:
    """Sum up a run file."""
    tensors = run.tensors()
    counted = [tensor for tensor in tensors if tensor.tied_to is None]
    unknown = run.meta.get("unknown_names", [])
    (nonfinite,) = run.query(
        "SELECT coalesce(max(n), 0) FROM (SELECT sum(nonfinite) n FROM weight GROUP BY step)"
    )[0]
    return Summary(
        run=str(run.path),
        source=str(run.meta.get("source", "")),
        complete=bool(run.meta.get("complete", True)),
        tensors=len(counted),
        tied=len(tensors) - len(counted),
        parameters=sum(tensor.numel for tensor in counted),
        skipped=len(run.skipped()),
        unknown_names=len(unknown),
        nonfinite=nonfinite,
        stages=tuple(_stage(run, stage) for stage in run.stages()),
        warnings=tuple(_warnings(run, unknown, nonfinite)),
    )


def _stage(run: Run, stage: str) -> StageSummary:
    body, everything = (group(run, scope=scope, stage=stage) for scope in ("body", "all"))
    ends = [float(g.measure("norm")[i, 0]) for g in (body, everything) for i in (0, -1)]
    (count,) = run.query("SELECT count(*) FROM checkpoint WHERE stage = ?", (stage,))[0]
    return StageSummary(stage, count or len(body.steps), int(body.steps[0]), int(body.steps[-1]), *ends)


def _warnings(run: Run, unknown: list[str], nonfinite: int) -> list[str]:
    warnings = list(run.meta.get("notes", []))
    if not run.meta.get("complete", True):
        warnings.append("the scan did not finish: run it again to continue")
    if unknown:
        warnings.append(
            f"{len(unknown)} names belong to no known model family: {some(unknown, SHOWN)}; "
            "their role is 'other'"
        )
    if nonfinite:
        warnings.append(f"NaN or infinite values (up to {nonfinite} at one step): left out of the sums")
    apart = {
        name: why
        for name, why in run.skipped().items()
        if why.startswith(("missing in", "its shape", "it becomes"))
    }
    if apart:
        name = next(iter(apart))
        warnings.append(
            f"{len(apart)} tensors are not the same in all checkpoints: left out ({name}: {apart[name]})"
        )
    for alarms in run.artifacts("alarm").values():
        warnings += [f"step {alarm['step']}: {alarm['message']}" for alarm in alarms]
    unchanging = constant_tensors(run)
    if unchanging:
        warnings.append(
            f"{len(unchanging)} tensors never change ({some(unchanging, SHOWN)}): frozen, or buffers; "
            "leave buffers out with --skip"
        )
    return warnings


def constant_tensors(run: Run) -> list[str]:
    """Names of the tensors that are the same at every checkpoint; none with fewer than three checkpoints."""
    found = run.query(
        "SELECT name FROM weight JOIN tensor ON tensor.id = weight.tensor "
        "GROUP BY tensor HAVING count(sumsq_delta) >= 2 AND max(sumsq_delta) = 0 ORDER BY tensor"
    )
    return [row[0] for row in found]
