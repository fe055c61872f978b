"""One experiment as it is to be run, and the options that it uses: others are refused."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from normscope.replication.experiment import Experiment
from normscope.replication.trials.trial_context import TrialContext


@dataclass(frozen=True)
class Job:
    """One experiment with the settings of a preset, and where its trials are kept."""

    experiment: Experiment
    settings: Mapping[str, Any] = field(hash=False)
    context: TrialContext


def used_options(jobs: Sequence[Job]) -> dict[str, bool]:
    """Return for each option whether one of the experiments uses it."""
    kinds = {job.experiment.kind for job in jobs}
    trains_on_text = any(reads_text(job.experiment.kind, job.settings) for job in jobs)
    return {
        "seeds": kinds != {"series"},
        "text": trains_on_text or "pretrained" in kinds,
        "valid": trains_on_text,
        "model": "pretrained" in kinds,
        "engine": bool(kinds & {"training", "automaton"}),
    }


def reads_text(kind: str, settings: Mapping[str, Any]) -> bool:
    """Whether an experiment trains on text."""
    return kind == "training" and "task" not in {**settings, **settings["vary"]}


def command_of(claim: str, preset: str, jobs: Sequence[Job], given: Mapping[str, Sequence[object]]) -> str:
    """Return the command that runs a claim again, with the values of the given options that it uses."""
    used = used_options(jobs)
    options = [(name, str(value)) for name, values in given.items() if used[name] for value in values]
    words = ["normscope", "replicate", claim, "--preset", preset, *(["--yes"] if preset == "full" else [])]
    return shlex.join([*words, *(word for name, value in options for word in (f"--{name}", value))])
