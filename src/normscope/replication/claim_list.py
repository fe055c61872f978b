"""Every claim with its cost in each preset on this machine, and what exists already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from normscope.progress import Progress, silent
from normscope.replication.claim import Claim
from normscope.replication.claim_files import chosen_claims
from normscope.replication.experiment import PRESETS
from normscope.replication.job_options import Job
from normscope.replication.replicate import ReplicationConfig, plan_jobs
from normscope.replication.results_file import read_results
from normscope.replication.trial_costs import cores, experiment_cost
from normscope.table import Table, Tabular


@dataclass(frozen=True)
class ListedClaim:
    """One claim: the seconds that each preset takes here, and the verdict that exists already."""

    id: str
    title: str
    kind: str
    experiments: tuple[str, ...]
    seconds: dict[str, float] = field(hash=False)
    verdict: str | None = None
    preset: str | None = None


@dataclass(frozen=True, repr=False)
class ClaimList(Tabular):
    """The result of listing claims; `seconds` is what each preset takes for all of them together.

    Experiments that several claims share are counted once in `seconds`.
    """

    claims: tuple[ListedClaim, ...]
    seconds: dict[str, float] = field(hash=False)
    cores: int

    @property
    def table(self) -> Table:
        """One row per claim."""
        names = ("claim", "title", *PRESETS, "verdict", "preset")
        return Table.from_rows(
            names,
            [(c.id, c.title, *(c.seconds[p] for p in PRESETS), c.verdict, c.preset) for c in self.claims],
        )


def list_claims(
    claims: Sequence[str] = (),
    output: str | Path = "replication",
    config: ReplicationConfig = ReplicationConfig(),
    progress: Progress = silent,
) -> ClaimList:
    """Return the claims, what each preset costs on this machine, and the verdicts in the folder `output`."""
    chosen = chosen_claims(claims)
    path = Path(output) / "results.json"
    there = {result.id: result for result in (read_results(path) if path.exists() else [])}
    costs = {
        preset: _costs(chosen, replace(config, preset=preset), Path(output), progress) for preset in PRESETS
    }
    listed = []
    for claim in chosen:
        seconds = {preset: sum(costs[preset][name] for name in claim.experiments) for preset in PRESETS}
        found = there.get(claim.id)
        verdict = (found.verdict, found.preset) if found else (None, None)
        listed.append(
            ListedClaim(claim.id, claim.title, claim.kind, tuple(claim.experiments), seconds, *verdict)
        )
    return ClaimList(tuple(listed), {preset: sum(costs[preset].values()) for preset in PRESETS}, cores())


def _costs(
    claims: Sequence[Claim], config: ReplicationConfig, folder: Path, progress: Progress
) -> dict[str, float]:
    """Seconds of each experiment on this machine, with all its cores."""
    jobs = plan_jobs(claims, config, folder)
    found = {}
    for done, job in enumerate(jobs):
        progress(done, len(jobs), f"timing a few updates of the preset {config.preset}")
        found[job.experiment.id] = job_seconds(job)
    return found


def job_seconds(job: Job) -> float:
    """Seconds that the job takes here; trainings run one per core."""
    cost = experiment_cost(job.experiment.kind, job.settings, job.context)
    return cost.seconds / (cores() if job.experiment.kind in ("training", "automaton") else 1)
