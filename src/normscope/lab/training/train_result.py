"""What `train` returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from normscope.rows import SATURATION_ERRORS
from normscope.run import Run, ScalarRow
from normscope.table import Table, Tabular


@dataclass(frozen=True, repr=False)
class TrainResult(Tabular):
    """The result of `train`: where its files are, the last loss, norms and evaluation.

    `out` is the folder of the run. `norm_start` and `norm_end` are norms of all parameters,
    `body_norm_start` and `body_norm_end` those of the body, without embeddings and output head.
    `evaluation` has, for example, `valid_loss`, `valid_accuracy` and `valid_perplexity`. `remarks` are
    sentences about the data, such as held-out words that were trained on. The table has every recorded
    number.

    >>> import normscope as ns, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = ns.train(ns.TrainConfig(steps=2, batch=2), folder)
    ...     sorted(set(result.table["name"]))[:3]
    ['body_norm', 'loss', 'lr']
    """

    out: Path
    run: Path
    checkpoints: Path
    steps: int
    parameters: int
    loss: float
    norm_start: float
    norm_end: float
    evaluation: dict[str, float] = field(hash=False)
    seconds: float
    body_norm_start: float | None = None
    body_norm_end: float | None = None
    remarks: tuple[str, ...] = ()

    @property
    def table(self) -> Table:
        """Every recorded number: step, name, value."""
        with Run(self.run) as run:
            return run.table(ScalarRow)

    @property
    def notes(self) -> Sequence[str]:
        """What could not be measured during the run, and why."""
        with Run(self.run) as run:
            found = saturation_error(run)
        return () if found is None else (found,)

    @property
    def messages(self) -> Sequence[str]:
        """Summary that a notebook shows above the table."""
        return (
            f"{self.steps} steps, {self.parameters:,} parameters: loss {self.loss:.4g}, "
            f"norm of the body {_short(self.body_norm_start)} → {_short(self.body_norm_end)}; "
            f"with embeddings and head {self.norm_start:.4g} → {self.norm_end:.4g}",
            *self.remarks,
            f"checkpoints: {self.checkpoints}; run file: {self.run}",
            *self.notes,
        )


def saturation_error(run: Run) -> str | None:
    """Why saturation is missing at the first step where it is, and at how many others; None if nowhere."""
    found = run.artifacts(SATURATION_ERRORS)
    if not found:
        return None
    first, *others = sorted(found, key=int)
    more = f" (and at {len(others)} later {'step' if len(others) == 1 else 'steps'})" if others else ""
    return f"{found[first]}{more}"


def _short(value: float | None) -> str:
    """A dash for what a run that an earlier release began does not know."""
    return "–" if value is None else f"{value:.4g}"
