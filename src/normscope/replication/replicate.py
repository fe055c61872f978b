"""Run the experiments of a paper's claims, compute their numbers, and give each claim its verdict.

    OUT/experiments/ID-DIGEST/    the trials of one experiment and one set of settings, kept as they finish
    OUT/results.json              every claim with its numbers and its verdict
    OUT/report.html               the same as a page

Killed and started again, a replication continues: finished trials are not run again.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from normscope.engines.engine import SupportsSubmit
from normscope.errors import UsageError
from normscope.option_checks import check_integer, check_progress
from normscope.progress import Progress, silent
from normscope.replication.claim import Claim
from normscope.replication.claim_files import chosen_claims, known_experiments
from normscope.replication.drawing_data import drawing
from normscope.replication.experiment import PRESETS, Experiment, settings_digest
from normscope.replication.file_states import file_state
from normscope.replication.job_options import Job, command_of, reads_text, used_options
from normscope.replication.judging.condition import COLUMNS, Measured
from normscope.replication.judging.document_values import Document
from normscope.replication.judging.verdict import decide
from normscope.replication.judging.verdict_wording import would_change
from normscope.replication.measured_numbers import measure_claim
from normscope.replication.replication_result import ClaimResult, Replication, shown_estimate
from normscope.replication.results_file import read_results, write_results
from normscope.replication.trial_costs import cores, experiment_cost, shown_time
from normscope.replication.trials.trial_context import TrialContext
from normscope.replication.trials.trial_kinds import run_trials

PLACEHOLDER = re.compile(r"\{([a-z]+)\.([a-z0-9_]+)(:%)?\}")  # with :%, a share is shown as a percentage


@dataclass(frozen=True)
class ReplicationConfig:
    """How much to run, and on what.

    `preset` is quick (minutes), standard (hours) or full (the paper's size); `seeds` replaces the preset's
    number of seeds. `text` and `valid` are text files to train and measure on instead of the prose that
    comes with Python; `models` are pretrained models besides the installed ones. `full` must be confirmed
    with `yes`.

    >>> ns.ReplicationConfig(seeds=5).preset
    'quick'
    """

    preset: str = "quick"
    seeds: int | None = None
    text: str | None = None
    valid: str | None = None
    models: tuple[str, ...] = ()
    yes: bool = False

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise UsageError(f"preset must be one of {', '.join(PRESETS)}, not {self.preset!r}")
        if self.seeds is not None:
            check_integer("seeds", self.seeds, 1, 1000)
        if self.valid is not None and self.text is None:
            raise UsageError("valid has no effect without text; leave it out, or give both")
        object.__setattr__(self, "models", tuple(map(str, self.models)))

    @property
    def given(self) -> dict[str, tuple[object, ...]]:
        """The options that were given, with their values, as the command line calls them."""
        single = {"seeds": self.seeds, "text": self.text, "valid": self.valid}
        found = {name: (value,) for name, value in single.items() if value is not None}
        return {**found, **({"model": self.models} if self.models else {})}


def replicate(
    *claims: str,
    output: str | Path = "replication",
    config: ReplicationConfig = ReplicationConfig(),
    engine: SupportsSubmit | str | None = None,
    progress: Progress = silent,
) -> Replication:
    """Test `claims` of the paper (all of them by default), and keep the results in the folder `output`.

    `config` says how much is run. `engine` runs the trainings, as in `sweep`; `progress` is called with
    (done, total, note). Results of other claims that are already in the folder stay there.

    >>> import normscope as ns, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = ns.replicate("sqrt-growth", output=folder)
    >>> found.claims[0].verdict
    'confirmed in part'
    """
    check_progress(progress)
    chosen = chosen_claims(claims)
    folder = Path(output).absolute()
    jobs = plan_jobs(chosen, config, folder, engine)
    _refuse_unused(jobs, config, engine)
    if config.preset == "full" and not config.yes:
        raise UsageError(f"{full_cost(jobs)}: confirm with --yes (yes=True)")
    place = folder / "results.json"
    if place.exists():
        read_results(place)  # a damaged file is to be said now, not after hours of training
    folder.mkdir(parents=True, exist_ok=True)
    documents, seconds = _run(jobs, progress)
    results = [
        replace(judge(claim, documents, config.preset, seconds), command=_command(claim, config, jobs))
        for claim in chosen
    ]
    write_results(place, results)
    return Replication(folder, tuple(read_results(place)))


def _command(claim: Claim, config: ReplicationConfig, jobs: Sequence[Job]) -> str:
    own = [job for job in jobs if job.experiment.id in claim.experiments]
    return command_of(claim.id, config.preset, own, config.given)


def full_cost(jobs: Sequence[Job]) -> str:
    """Say what the preset full would take on this machine, from a few timed updates."""
    seconds = sum(map(job_seconds, jobs))
    return (
        f"the preset full would take about {shown_time(seconds)} on this machine ({cores()} cores), by a few "
        "timed updates; --engine runs it on a cluster"
    )


def job_seconds(job: Job) -> float:
    """Seconds that a job takes here; trainings run one per core."""
    cost = experiment_cost(job.experiment.kind, job.settings, job.context)
    return cost.seconds / (cores() if job.experiment.kind in ("training", "automaton") else 1)


def _refuse_unused(
    jobs: Sequence[Job], config: ReplicationConfig, engine: SupportsSubmit | str | None
) -> None:
    """Refuse what none of the experiments uses."""
    given = [*config.given, *([] if engine is None else ["engine"])]
    for name, used in used_options(jobs).items():
        if name in given and not used:
            raise UsageError(f"{name} has no effect on these claims; leave it out")


def plan_jobs(
    claims: Sequence[Claim],
    config: ReplicationConfig,
    folder: Path,
    engine: SupportsSubmit | str | None = None,
) -> list[Job]:
    """Return what must be run for these claims, each experiment once."""
    wanted = dict.fromkeys(name for claim in claims for name in claim.experiments)
    return [_job(known_experiments(), name, config, folder, engine) for name in wanted]


def _job(
    known: Mapping[str, Experiment],
    name: str,
    config: ReplicationConfig,
    folder: Path,
    engine: SupportsSubmit | str | None,
) -> Job:
    if name not in known:
        raise UsageError(f"there is no experiment {name!r}; there are {', '.join(known)}")
    experiment = known[name]
    settings = experiment.settings(config.preset)
    models = config.models if experiment.kind == "pretrained" else ()
    context = TrialContext(
        folder, config.seeds or settings.get("seeds", 3), engine, config.text, config.valid, models
    )
    reads = reads_text(experiment.kind, settings)
    kept_apart = {
        **settings,
        "text": file_state(config.text) if reads or experiment.kind == "pretrained" else None,
        "valid": file_state(config.valid) if reads else None,
        "models": tuple(map(file_state, models)),
    }
    if experiment.kind in ("scaling", "pretrained"):  # whose documents depend on the number of seeds
        kept_apart["seeds"] = context.seeds
    place = folder / "experiments" / f"{name}-{settings_digest(kept_apart)}"
    return Job(experiment, settings, replace(context, folder=place))


def _run(jobs: Sequence[Job], progress: Progress) -> tuple[dict[str, Sequence[Document]], dict[str, float]]:
    documents: dict[str, Sequence[Document]] = {}
    seconds: dict[str, float] = {}
    jobs = sorted(
        jobs, key=lambda job: not job.context.models
    )  # a model that does not load is to be said first
    costs = [experiment_cost(job.experiment.kind, job.settings, job.context).seconds for job in jobs]
    for number, job in enumerate(jobs):
        began = time.monotonic()
        name = job.experiment.id
        before = (sum(costs[:number]), costs[number], sum(costs))
        context = replace(job.context, progress=_part(progress, before, name))
        documents[name] = run_trials(job.experiment.kind, job.settings, context)
        trained = math.fsum(document.get("seconds") or 0.0 for document in documents[name])
        seconds[name] = max(time.monotonic() - began, trained)
    return documents, seconds


def _part(progress: Progress, costs: tuple[float, float, float], name: str) -> Progress:
    """The progress of one experiment as a part of the whole: what was before it, its own cost, and all."""
    before, own, everything = costs

    def report(done: float, total: float, note: str) -> None:
        share = done / total if total else 0.0
        progress(before + share * own, everything, f"{name}: {done:g} of {total:g}  {note}")

    return report


def judge(
    claim: Claim,
    documents: Mapping[str, Sequence[Document]],
    preset: str,
    seconds: Mapping[str, float],
) -> ClaimResult:
    """Compute the numbers of a claim, decide, and describe what was run."""
    measured = measure_claim(claim, documents)
    decision = decide(claim.rules, measured)
    columns: dict[str, Any] = {name: measured.get(name, {}) for name in COLUMNS}
    estimates = [*columns["released"].values(), *columns["corrected"].values()]
    labels = {number.name: number.label for number in claim.numbers}
    return ClaimResult(
        **{name: getattr(claim, name) for name in ("id", "kind", "title", "statement", "place", "audit")},
        verdict=decision.verdict,
        because=_filled(decision.because, measured),
        otherwise=would_change(decision, labels, measured),
        headline=next(number.name for number in claim.numbers if number.headline),
        labels=labels,
        **columns,
        conditions={name: column.note for name, column in claim.columns.items()},
        seeds=max((estimate.seeds for estimate in estimates), default=0),
        preset=preset,
        seconds=sum(seconds.get(name, 0.0) for name in claim.experiments),
        command=f"normscope replicate {claim.id} --preset {preset}",
        notes=_notes(claim, documents),
        figure=drawing(claim, documents),
    )


def _filled(sentence: str, measured: Measured) -> str:
    """The sentence with the numbers that it mentions."""

    def number(match: re.Match[str]) -> str:
        return shown_estimate(measured.get(match[1], {}).get(match[2]), as_percent=bool(match[3]))

    return PLACEHOLDER.sub(number, sentence)


def _notes(claim: Claim, documents: Mapping[str, Sequence[Document]]) -> tuple[str, ...]:
    """What is to be said of the data, and what did not finish: numbers may be missing because of it."""
    notes = []
    for name in claim.experiments:
        found = documents.get(name, ())
        remarks = dict.fromkeys(remark for document in found for remark in document.get("remarks", ()))
        notes += [f"{name}: {remark}" for remark in remarks]
        if not found:
            notes.append(f"{name}: nothing could be run (see docs/replication.md for what it needs)")
        missing = [d["saturation_error"] for d in found if d.get("saturation_error")]
        if missing:
            count = f"{len(missing)} of {len(found)} trainings"
            notes.append(f"{name}: in {count} some saturation is missing: {missing[0]}")
        for status in ("failed", "diverged"):
            those = [document for document in found if document["status"] == status]
            if those:
                first = str(those[0].get("error") or "").splitlines()[-1:]
                notes.append(f"{name}: {len(those)} of {len(found)} trainings {status}: {' '.join(first)}")
    return tuple(notes)
