"""Nothing the monitor meets may end a training run: each trouble is injected for real."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from normscope.live.writing.outbox import Outbox
from normscope.run import Run
from tests.live.small_training import monitored, rows, train


def test_a_folder_that_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "gone" / "run.db"
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 5)
    assert not monitor.flush(timeout=0.3)
    assert caplog.text.count("training goes on") == 1
    path.parent.mkdir()
    monitor.close()
    assert {step for step, _ in rows(path)} == set(range(6))
    assert "works again" in caplog.text


def test_a_folder_that_never_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer, monitor = monitored(tmp_path / "gone" / "run.db")
    train(model, optimizer, 2)
    assert not monitor.close(timeout=0.2)
    assert "records could not be written and are lost" in caplog.text


def test_a_locked_file(tmp_path: Path) -> None:
    model, optimizer, monitor = monitored(tmp_path / "run.db")
    train(model, optimizer, 1)
    assert monitor.flush()
    other = sqlite3.connect(tmp_path / "run.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for _ in range(3):
        train(model, optimizer, 1)
    assert not monitor.flush(timeout=0.3)
    other.execute("ROLLBACK")
    other.close()
    monitor.close()
    assert {step for step, _ in rows(tmp_path / "run.db")} == set(range(5))


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from tests.live.small_training import monitored, rows, train

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
model, optimizer, monitor = monitored(path)
train(model, optimizer, 2)
assert monitor.flush()
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))  # no file may grow: a full disk
train(model, optimizer, 60)
assert not monitor.flush(timeout=0.5)
assert monitor.step == 62
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
monitor.close()
assert {step for step, _ in rows(path)} == set(range(63))
print("all there")
"""


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "run.db")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "all there\n", done.stderr
    assert done.stderr.count("training goes on") == 1


def test_a_parameter_and_a_gradient_that_become_nan(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer, monitor = monitored(tmp_path / "run.db")
    train(model, optimizer, 2)
    with torch.no_grad():
        model.never[0] = float("nan")  # nothing depends on it
    train(model, optimizer, 1)
    with torch.no_grad():
        model.inner.weight[0, 0] = float("nan")
    train(model, optimizer, 1)
    monitor.close()
    found = rows(tmp_path / "run.db")
    assert [found[step, "never"]["nonfinite"] for step in (2, 3, 4)] == [0, 1, 1]
    assert found[3, "never"]["sumsq"] == 1.0
    assert found[3, "inner.weight"]["grad_sumsq"] > 0
    assert found[4, "inner.weight"]["nonfinite"] >= 1
    assert found[4, "inner.weight"]["grad_sumsq"] is None
    assert caplog.text.count("NaN or infinite values in never (1)") == 1
    with Run(tmp_path / "run.db") as run:
        (alarm,) = run.artifacts("alarm")[""]
    assert (alarm["kind"], alarm["step"], alarm["evidence"]["values"]) == ("nonfinite", 3, 1)


def test_a_tracker_that_is_down_and_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []
    up = threading.Event()

    def tracker(values: Mapping[str, float], step: int) -> None:
        if not up.is_set():
            raise ConnectionError("no route to the tracker")
        assert "normscope/norm/total" in values
        seen.append(step)

    model, optimizer, monitor = monitored(tmp_path / "run.db", loggers=[tracker])
    train(model, optimizer, 4)
    monitor.flush(timeout=0.3)
    assert caplog.text.count("no route to the tracker") == 1
    assert {step for step, _ in rows(tmp_path / "run.db")} == set(range(5))
    up.set()
    monitor.close()
    assert seen == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_a_tracker_that_hangs_delays_nothing(tmp_path: Path) -> None:
    hang = threading.Event()
    model, optimizer, monitor = monitored(
        tmp_path / "run.db", loggers=[lambda values, step: hang.wait(60) and None]
    )
    train(model, optimizer, 3)
    assert not monitor.flush(timeout=2)
    assert {step for step, _ in rows(tmp_path / "run.db")} == set(range(4))
    hang.set()
    monitor.close()


def test_a_failure_while_measuring(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer, monitor = monitored(tmp_path / "run.db")
    train(model, optimizer, 1)
    monkeypatch.setattr("normscope.live.recording.previous_values.copy_into", None)
    train(model, optimizer, 3)
    assert monitor.step == 4
    monitor.close()
    assert {step for step, _ in rows(tmp_path / "run.db")} == {0, 1}
    assert caplog.text.count("copying parameters failed") == 1
    assert caplog.text.count("step 2 is not recorded, because measuring failed on 1 of 1 ranks") == 1


def test_logging_what_is_not_a_number(tmp_path: Path) -> None:
    model, optimizer, monitor = monitored(tmp_path / "run.db")
    train(model, optimizer, 1)
    monitor.log(loss="unknown")
    monitor.close()


def test_an_outbox_forgets_the_oldest_when_it_is_full(caplog: pytest.LogCaptureFixture) -> None:
    got: list[int] = []
    open_ = threading.Event()

    def deliver(items: object) -> None:
        if not open_.is_set():
            raise OSError("closed")
        got.extend(items)  # type: ignore[arg-type]

    box: Outbox[int] = Outbox(deliver, "test", limit=3)
    for i in range(10):
        box.put(i)
    box.flush(0.6)
    open_.set()
    assert not box.close()
    assert got[-1] == 9 and len(got) <= 4
    assert logging.getLevelName(caplog.records[-1].levelno) == "WARNING"


def test_the_report_can_be_read_while_training_runs(tmp_path: Path) -> None:
    model, optimizer, monitor = monitored(tmp_path / "run.db")
    for _ in range(4):
        train(model, optimizer, 2)
        monitor.flush()
        with Run(tmp_path / "run.db") as run:
            assert run.query("SELECT MAX(step) FROM weight")[0][0] == monitor.step
    monitor.close()
