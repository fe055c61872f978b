"""TensorBoard, Weights & Biases, MLflow and trackio as loggers; each package is imported when it is used.

    Monitor(model, optimizer, "run.db", options=MonitorOptions(loggers=[tensorboard("runs")]))

Any other function of (values, step) is a logger too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from normscope.anatomy import scope_words
from normscope.errors import UsageError
from normscope.live.monitor_options import LoggedValues
from normscope.plugins import require

STEP = "normscope/step"
SCOPE = "normscope_scope"
"""Where a tracker keeps which parameters the values count: in a run's config, tags or texts."""


@dataclass(frozen=True)
class Tracker:
    """A logger with a name, under which its problems are reported.

    `describe_in` keeps a sentence about the values where people see it.
    """

    name: str
    send: Callable[[LoggedValues, int], None]
    describe_in: Callable[[str], None] = lambda sentence: None

    def __call__(self, values: LoggedValues, step: int) -> None:
        """Send the values of a step."""
        self.send(values, step)

    def describe(self, scope: str) -> None:
        """Say which parameters the values count."""
        self.describe_in(scope_sentence(scope))


def scope_sentence(scope: str) -> str:
    """Which parameters the values of a scope count."""
    without = ", without embeddings and output head" if scope == "body" else ""
    return f"the values count {scope_words(scope)}{without}"


def tensorboard(where: str | os.PathLike[str] | Any) -> Tracker:
    """Log to a TensorBoard folder, or with an open SummaryWriter."""
    writer: Any = where
    if isinstance(where, (str, os.PathLike)):
        require("tensorboard", "loggers", "logging to TensorBoard")
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(os.fspath(where))

    def send(values: LoggedValues, step: int) -> None:
        for key, value in values.items():
            writer.add_scalar(key, value, step)
        writer.flush()

    return Tracker("tensorboard", send, lambda sentence: writer.add_text(SCOPE, sentence))


def wandb(run: Any = None) -> Tracker:
    """Log to a Weights & Biases run, by default the active one.

    The optimizer step is logged as a value of its own, `normscope/step`: wandb drops
    values whose step goes back, and the training loop may count its steps differently.
    """
    target = run or require("wandb", "loggers", "logging to Weights & Biases").run
    if target is None:
        raise UsageError("no Weights & Biases run is active: call wandb.init(...) first, or pass the run")
    target.define_metric(STEP, hidden=True)
    target.define_metric("normscope/*", step_metric=STEP)
    return Tracker(
        "wandb",
        lambda values, step: target.log({**values, STEP: step}),
        lambda sentence: target.config.update({SCOPE: sentence}, allow_val_change=True),
    )


def mlflow(run_id: str | None = None) -> Tracker:
    """Log to an MLflow run, by default the active one.

    The run's id is kept, because MLflow's active run differs between threads.
    """
    package = require("mlflow", "loggers", "logging to MLflow")
    active = package.active_run()
    chosen = run_id or (active.info.run_id if active else None)
    if chosen is None:
        raise UsageError("no MLflow run is active: call mlflow.start_run() first, or pass run_id")

    def send(values: LoggedValues, step: int) -> None:
        package.log_metrics(dict(values), step=step, run_id=chosen)

    return Tracker("mlflow", send, lambda sentence: package.MlflowClient().set_tag(chosen, SCOPE, sentence))


def trackio(run: Any = None) -> Tracker:
    """Log to a trackio run, by default the one that trackio.init created last."""
    package = require("trackio", "loggers", "logging to trackio")
    target = run or package.context_vars.current_run.get()
    if target is None:
        raise UsageError("no trackio run is active: call trackio.init(project=...) first, or pass the run")
    return Tracker(
        "trackio",
        lambda values, step: target.log(metrics=dict(values), step=step),
        lambda sentence: target.config.update({SCOPE: sentence}),  # sent with the run's first values
    )


TRACKERS: Mapping[str, Callable[..., Tracker]] = {
    "tensorboard": tensorboard,
    "wandb": wandb,
    "mlflow": mlflow,
    "trackio": trackio,
}
