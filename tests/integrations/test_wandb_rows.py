"""A training loop's own rows in a real offline W&B run, with our logger and without."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from normscope.integrations import loggers
from tests.integrations.wandb_history import History, read
from tests.live.small_training import monitored, train

wandb = pytest.importorskip("wandb")
pytestmark = pytest.mark.filterwarnings("ignore")  # wandb's own

STEPS = 60
Loop = Callable[[Any, int], None]


def explicit(run: Any, i: int) -> None:
    run.log({"loss": 1.0 / (i + 1)}, step=i)


def implicit(run: Any, i: int) -> None:
    run.log({"loss": 1.0 / (i + 1)})


def parts(run: Any, i: int) -> None:
    """One row from three calls, committed by the last."""
    run.log({"loss": 1.0 / (i + 1)}, commit=False)
    run.log({"accuracy": i / STEPS}, commit=False)
    run.log({"rate": 0.1})


def explicit_parts(run: Any, i: int) -> None:
    """Several calls to one step, which the next step completes; some commit."""
    run.log({"loss": 1.0 / (i + 1)}, step=i)
    run.log({"accuracy": i / STEPS}, step=i, commit=i % 3 == 0)


def own_axes(run: Any, i: int) -> None:
    if i == 0:
        run.define_metric("train/global_step")
        run.define_metric("*", step_metric="train/global_step", step_sync=True)
    run.log({"loss": 1.0 / (i + 1), "train/global_step": 5 * i})
    if i % 7 == 0:
        run.log({"eval/loss": 2.0})


def seldom(run: Any, i: int) -> None:
    if i % 10 == 9:
        run.log({"loss": 1.0 / (i + 1)}, step=i)


def late(run: Any, i: int) -> None:
    if i >= 30:
        run.log({"loss": 1.0 / (i + 1)}, step=100 + i)


def often(run: Any, i: int) -> None:
    for part in range(3):
        run.log({"loss": 1.0 / (i + 1)}, step=3 * i + part)


def backwards(run: Any, i: int) -> None:
    """Two loops with counts of their own: W&B itself drops what goes back."""
    run.log({"loss": 1.0 / (i + 1)}, step=i)
    if i % 4 == 0:
        run.log({"epoch": i // 4}, step=i // 4)


LOOPS: list[Loop] = [explicit, implicit, parts, explicit_parts, own_axes, seldom, late, often, backwards]
FAST = (explicit, implicit)


def logged(folder: Path, loop: Loop, monitor: bool, pause: float = 0.0) -> History:
    """Train for STEPS steps, log as the loop does, and once more after the training."""
    folder.mkdir()
    with wandb.init(project="normscope-test", mode="offline", dir=str(folder)) as run:
        options = {"loggers": [loggers.wandb()]} if monitor else {}
        model, optimizer, watching = monitored(folder / "run.db", **options)
        with watching:
            for i in range(STEPS):
                train(model, optimizer, i + 1, first=i)
                watching.log(loss=float(i))
                loop(run, i)
                time.sleep(pause)
        run.log({"test": 3.0})
    return read(folder)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")


@pytest.mark.parametrize(
    "loop", [pytest.param(x, id=x.__name__, marks=[] if x in FAST else pytest.mark.slow) for x in LOOPS]
)
def test_every_row_of_the_loop_is_what_it_is_without_us(tmp_path: Path, loop: Loop) -> None:
    alone = logged(tmp_path / "alone", loop, monitor=False)
    together = logged(tmp_path / "together", loop, monitor=True)
    assert together.theirs() == alone.theirs()
    if loop is explicit:
        assert [row["loss"] for _, row in together.theirs()[:STEPS]] == [1 / (i + 1) for i in range(STEPS)]
    table = in_table(tmp_path / "together")
    found = {**table, **{step: {**table.get(step, {}), **v} for step, v in together.ours().items()}}
    assert found.keys() == set(range(STEPS + 1))
    assert all("normscope/norm/total" in values for values in found.values())
    assert [found[i + 1]["normscope/loss"] for i in range(STEPS)] == [float(i) for i in range(STEPS)]
    assert {together.axes[k] for v in together.ours().values() for k in v} == {"normscope/step"}
    assert together.summary["normscope/step"] == STEPS  # the newest, whatever came last


@pytest.mark.slow
def test_a_loop_that_logs_every_step_has_the_records_on_its_rows(tmp_path: Path) -> None:
    together = logged(tmp_path / "together", explicit, monitor=True, pause=0.02)
    assert len(together.rows) == STEPS
    found = together.ours()
    assert len(found) > 0.7 * STEPS and list(found) == sorted(found)


def test_a_run_of_its_own_has_a_row_for_every_record(tmp_path: Path) -> None:
    with wandb.init(project="normscope-test", mode="offline", dir=str(tmp_path)) as run:
        model, optimizer, monitor = monitored(tmp_path / "run.db", loggers=[loggers.wandb(alone=True)])
        with monitor:
            train(model, optimizer, 3)
        assert "the values count the body" in run.config[loggers.SCOPE]
    history = read(tmp_path)
    assert [row["normscope/step"] for _, row in history.rows] == [0, 1, 2, 3]
    assert history.axes["normscope/norm/total"] == "normscope/step"


def test_a_run_that_nobody_else_logs_to_still_gets_every_record(tmp_path: Path, caplog) -> None:
    with wandb.init(project="normscope-test", mode="offline", dir=str(tmp_path)) as run:
        model, optimizer, monitor = monitored(tmp_path / "run.db", loggers=[loggers.wandb(run)])
        with monitor:
            train(model, optimizer, 3)
        assert "the values count the body" in run.config[loggers.SCOPE]
    history = read(tmp_path)
    assert history.ours().keys() | in_table(tmp_path).keys() == {0, 1, 2, 3}
    assert history.summary["normscope/step"] == 3 and len(history.rows) == 1
    assert "wandb(alone=True)" in caplog.text


def test_a_run_that_is_finished_first_is_said_and_ends_nothing(tmp_path: Path, caplog) -> None:
    run = wandb.init(project="normscope-test", mode="offline", dir=str(tmp_path))
    model, optimizer, monitor = monitored(tmp_path / "run.db", loggers=[loggers.wandb()])
    train(model, optimizer, 3)
    monitor.flush()
    run.finish()
    start = time.monotonic()
    assert monitor.close() and time.monotonic() - start < 5
    assert "records that found no row of the run: 3" in caplog.text


class Stuck:
    """A run whose service does not answer."""

    settings = step = None

    def define_metric(self, *_: Any, **__: Any) -> None:
        threading.Event().wait()


def test_a_run_that_hangs_delays_neither_training_nor_the_end(tmp_path: Path) -> None:
    model, optimizer, monitor = monitored(tmp_path / "run.db", loggers=[loggers.wandb(Stuck())])
    start = time.monotonic()
    train(model, optimizer, 5)
    monitor.log(loss=1.0)
    assert not monitor.close(timeout=0.3)
    assert time.monotonic() - start < 3


def in_table(folder: Path) -> dict[int, dict[str, float]]:
    """The records that found no row."""
    found: dict[int, dict[str, float]] = {}
    for path in folder.glob("wandb/offline-run-*/files/media/table/**/*.json"):
        table = json.loads(path.read_text())
        for row in table["data"]:
            values = dict(zip(table["columns"], row, strict=True))
            step = values.pop("normscope/step")
            found[step] = {k: v for k, v in values.items() if v is not None}
    return found
