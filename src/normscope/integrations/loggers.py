"""Trackers people already use, each as a function of (values, step); imported only when made.

    Monitor(model, optimizer, "run.db", options=MonitorOptions(loggers=[tensorboard("runs")]))

Any other function with these two arguments will do as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from normscope.errors import MissingExtra, UsageError

Values = Mapping[str, float]
STEP = "normscope/step"


@dataclass(frozen=True)
class Tracker:
    """A named destination: a problem with it is reported under this name."""

    name: str
    send: Callable[[Values, int], None]

    def __call__(self, values: Values, step: int) -> None:
        """Send the values of a step."""
        self.send(values, step)


def tensorboard(where: str | os.PathLike[str] | Any) -> Tracker:
    """A TensorBoard folder, or a SummaryWriter that is open already."""
    if isinstance(where, (str, os.PathLike)):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("tensorboard", "loggers", "logging to TensorBoard") from None
        where = SummaryWriter(os.fspath(where))

    def send(values: Values, step: int) -> None:
        for key, value in values.items():
            where.add_scalar(key, value, step)
        where.flush()

    return Tracker("tensorboard", send)


def wandb(run: Any = None) -> Tracker:
    """A Weights & Biases run; the active one by default.

    The optimizer step travels as a value of its own, so that it never meets
    the order of steps that the rest of the training logs under.
    """
    try:
        import wandb as package
    except ImportError:
        raise MissingExtra("wandb", "loggers", "logging to Weights & Biases") from None
    target = run or package.run
    if target is None:
        raise UsageError("no Weights & Biases run is active: call wandb.init(...) first, or pass the run")
    target.define_metric(STEP, hidden=True)
    target.define_metric("normscope/*", step_metric=STEP)
    return Tracker("wandb", lambda values, step: target.log({**values, STEP: step}))


def mlflow(run_id: str | None = None) -> Tracker:
    """An MLflow run; the active one by default. The run is named, for the active one is a thread's own."""
    try:
        import mlflow as package
    except ImportError:
        raise MissingExtra("mlflow", "loggers", "logging to MLflow") from None
    active = package.active_run()
    chosen = run_id or (active.info.run_id if active else None)
    if chosen is None:
        raise UsageError("no MLflow run is active: call mlflow.start_run() first, or pass run_id")

    def send(values: Values, step: int) -> None:
        package.log_metrics(dict(values), step=step, run_id=chosen)

    return Tracker("mlflow", send)


def trackio(run: Any = None) -> Tracker:
    """A trackio run; the one that trackio.init made last by default."""
    try:
        from trackio import context_vars
    except ImportError:
        raise MissingExtra("trackio", "loggers", "logging to trackio") from None
    target = run or context_vars.current_run.get()
    if target is None:
        raise UsageError("no trackio run is active: call trackio.init(project=...) first, or pass the run")
    return Tracker("trackio", lambda values, step: target.log(metrics=dict(values), step=step))


TRACKERS: Mapping[str, Callable[..., Tracker]] = {
    "tensorboard": tensorboard,
    "wandb": wandb,
    "mlflow": mlflow,
    "trackio": trackio,
}
