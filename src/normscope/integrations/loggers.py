"""TensorBoard, Weights & Biases, MLflow and trackio as loggers; each package is imported when it is used.

    Monitor(model, optimizer, "run.db", options=MonitorOptions(loggers=[tensorboard("runs")]))

Any other function of (values, step) is a logger too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normscope.anatomy import scope_words
from normscope.errors import UsageError
from normscope.integrations.wandb_rows import STEP, JoinedRows, StepAxis
from normscope.live.monitor_options import LoggedValues
from normscope.plugins import require

SCOPE = "normscope_scope"
"""Where a tracker keeps which parameters the values count: in a run's config, tags or texts."""
OURS = ".normscope"
"""How the names of our event files end."""
AT_ONCE = 1000
"""Metrics that MLflow accepts in one request."""


@dataclass(frozen=True)
class Tracker:
    """A logger with a name, under which its problems are reported.

    `describe_in` keeps a sentence about the values where people see it, `finish_with` is called when the
    monitor is closed, and `scalars` says whether what is given to `Monitor.log` is sent too.
    """

    name: str
    send: Callable[[LoggedValues, int], None]
    describe_in: Callable[[str], None] = lambda sentence: None
    finish_with: Callable[[], None] = lambda: None
    scalars: bool = True

    def __call__(self, values: LoggedValues, step: int) -> None:
        """Send the values of a step."""
        self.send(values, step)

    def describe(self, scope: str) -> None:
        """Say which parameters the values count."""
        self.describe_in(scope_sentence(scope))

    def finish(self) -> None:
        """The last values have been sent."""
        self.finish_with()


def scope_sentence(scope: str) -> str:
    """Which parameters the values of a scope count."""
    without = ", without embeddings and output head" if scope == "body" else ""
    return f"the values count {scope_words(scope)}{without}"


def tensorboard(where: str | os.PathLike[str] | Any) -> Tracker:
    """Log to a TensorBoard folder, or with an open SummaryWriter.

    In a folder that has event files of another writer, values go to its subfolder `normscope`: of two files
    that grow in one folder, TensorBoard may go on reading only the newer one.
    """
    if not isinstance(where, (str, os.PathLike)):
        return _tensorboard(where, lambda: None)
    require("tensorboard", "loggers", "logging to TensorBoard")
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(os.fspath(_free_folder(Path(where))), filename_suffix=OURS)
    return _tensorboard(writer, writer.close)


def _free_folder(folder: Path) -> Path:
    """The folder itself, or its subfolder `normscope` if another writer has event files there."""
    others = [file for file in folder.glob("*tfevents*") if not file.name.endswith(OURS)]
    return folder / "normscope" if others else folder


def _tensorboard(writer: Any, close: Callable[[], None]) -> Tracker:
    def send(values: LoggedValues, step: int) -> None:
        for key, value in values.items():
            writer.add_scalar(key, value, step)
        writer.flush()

    return Tracker("tensorboard", send, lambda sentence: writer.add_text(SCOPE, sentence), close)


def wandb(run: Any = None, alone: bool = False) -> Tracker:
    """Log to a Weights & Biases run, by default the active one.

    Values are added to the rows that the training loop logs and never commit one, so the loop's own rows
    and steps are what they would be without. The optimizer step is a value too, `normscope/step`, and is the
    axis of the charts. With `alone`, every record is a row of its own at once: for a run that nothing else
    logs to.
    """
    target = run or require("wandb", "loggers", "logging to Weights & Biases").run
    if target is None:
        raise UsageError("no Weights & Biases run is active: call wandb.init(...) first, or pass the run")

    def describe(sentence: str) -> None:
        target.config.update({SCOPE: sentence}, allow_val_change=True)

    if (
        alone or getattr(target.settings, "mode", None) == "shared"
    ):  # a shared run's steps are given by the server
        axis = StepAxis(target)

        def commit(values: LoggedValues, step: int) -> None:
            axis.define(values)
            target.log({**values, STEP: step})

        return Tracker("wandb", commit, describe)
    rows = JoinedRows(target)
    return Tracker("wandb", rows.put, describe, rows.finish)


def mlflow(run_id: str | None = None, client: Any = None) -> Tracker:
    """Log to an MLflow run, by default the active one, with a client of your own if you have one.

    The run's id is kept, because MLflow's active run differs between threads. Steps belong to each metric
    in MLflow, so those of other metrics do not matter.
    """
    package = require("mlflow", "loggers", "logging to MLflow")
    active = package.active_run() if run_id is None else None
    chosen = run_id or (active.info.run_id if active else None)
    if chosen is None:
        raise UsageError("no MLflow run is active: call mlflow.start_run() first, or pass run_id")
    used = client or package.MlflowClient()

    def send(values: LoggedValues, step: int) -> None:
        now = int(time.time() * 1000)
        metrics = [package.entities.Metric(key, value, now, step) for key, value in values.items()]
        for start in range(0, len(metrics), AT_ONCE):
            used.log_batch(chosen, metrics=metrics[start : start + AT_ONCE])

    return Tracker("mlflow", send, lambda sentence: used.set_tag(chosen, SCOPE, sentence))


def trackio(run: Any = None, alone: bool = False) -> Tracker:
    """Log to a trackio run, by default the one that trackio.init created last.

    Values go to the newest step that the training loop has logged to (−1 before its first), with the
    optimizer step as a value, `normscope/step`, which can be chosen as the X axis: a higher step would move
    the step of the loop's next `trackio.log`. With `alone`, they go to the optimizer step itself: for a run
    that nothing else logs to.
    """
    package = require("trackio", "loggers", "logging to trackio")
    target = run or package.context_vars.current_run.get()
    if target is None:
        raise UsageError("no trackio run is active: call trackio.init(project=...) first, or pass the run")

    def send(values: LoggedValues, step: int) -> None:
        # The counter has no public name. It only grows, so a step below it never moves it.
        at = step if alone else getattr(target, "_next_step", step + 1) - 1
        target.log(metrics={**values, STEP: step}, step=at)

    # The config is sent with the run's first values.
    return Tracker("trackio", send, lambda sentence: target.config.update({SCOPE: sentence}))


TRACKERS: Mapping[str, Callable[..., Tracker]] = {
    "tensorboard": tensorboard,
    "wandb": wandb,
    "mlflow": mlflow,
    "trackio": trackio,
}
