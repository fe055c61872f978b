"""Trials that train: one run of the lab for each combination of the varied fields and seeds, as a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from normscope.errors import UsageError
from normscope.lab.config import TrainConfig, override
from normscope.lab.field_paths import field_paths
from normscope.lab.model import SIZES
from normscope.lab.sweep.cells import grid, make_cells
from normscope.lab.sweep.sweep import SweepConfig, sweep
from normscope.replication.trials.trial_context import Document, TrialContext

NOT_FIELDS = ("size", "vary", "seeds", "needs")


@dataclass(frozen=True)
class TrainingPlan:
    """The base config of an experiment's trainings, and the changes of each."""

    base: TrainConfig
    cells: Sequence[Mapping[str, Any]]

    @property
    def configs(self) -> list[TrainConfig]:
        """The config of every training."""
        return [override(self.base, cell) for cell in self.cells]


def training_plan(settings: Mapping[str, Any], context: TrialContext) -> TrainingPlan:
    """Turn the settings of a preset into trainings."""
    names = field_paths(TrainConfig)
    unknown = [name for name in settings if name not in names and name not in NOT_FIELDS]
    if unknown:
        raise UsageError(f"the experiment sets {unknown[0]!r}, which is not a field of a lab config")
    fields = {"save": "never", **{name: settings[name] for name in settings if name in names}}
    reads_text = "task" not in fields and "task" not in settings["vary"]
    if reads_text and context.text is not None:
        fields |= {"text": context.text, **({"valid": context.valid} if context.valid else {})}
    for need in settings.get("needs", ()):
        if fields.get(need) is None:
            raise UsageError(
                f"this preset needs --{need} FILE: the paper trained on WikiText-2 and Penn Treebank"
            )
    base = override(TrainConfig(model=SIZES[settings.get("size", "pico")]), fields)
    return TrainingPlan(base, grid({**settings["vary"], "seed": list(range(context.seeds))}))


def run_trainings(settings: Mapping[str, Any], context: TrialContext) -> list[Document]:
    """Train everything that has no result yet; return the documents of the cells (see docs/json.md)."""
    plan = training_plan(settings, context)
    config = SweepConfig(plan.base, plan.cells, retry=True)  # a disk that was full may have room now
    result = sweep(config, context.folder, engine=context.engine, progress=context.progress)
    wanted = {cell.id for cell in make_cells(plan.base, plan.cells)}
    about = {"length": plan.base.data.length, "remarks": list(result.remarks)}
    return [{**cell, **about} for cell in result.cells if cell["id"] in wanted]
