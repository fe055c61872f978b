"""A run file that is deleted, moved or replaced while training writes it: nothing is lost or overwritten."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from normscope.run import Run
from normscope.writer_lock import WriterLock
from tests.live.small_training import monitored, rows, train

ROOT = Path(__file__).parents[2]


def steps_of(path: Path) -> set[int]:
    return {step for step, _ in rows(path)}


def moved_note(path: Path) -> str:
    with Run(path) as run:
        return str(run.meta["monitor.moved"])


def lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def delete_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def delete_file(path: Path) -> None:
    path.unlink()


def move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


@pytest.mark.parametrize("remove", [delete_folder, delete_file, move_folder])
def test_a_file_that_is_gone_is_made_again_with_all_it_had(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, remove: object
) -> None:
    path = tmp_path / "out" / "run.db"
    path.parent.mkdir()
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 5)
    monitor.log_at(5, {"loss": 2.0})
    assert monitor.flush()
    before = rows(path)
    assert callable(remove)
    remove(path)
    train(model, optimizer, 4)
    assert monitor.flush()
    assert caplog.text.count("was deleted or moved while the training wrote it") == 1
    train(model, optimizer, 2)
    assert monitor.close()
    after = rows(path)
    assert {key: after[key] for key in before} == before
    assert steps_of(path) == set(range(12))
    assert str(path) in moved_note(path)
    with Run(path) as run:
        assert run.query("SELECT step, name FROM scalar") == [(5, "loss")]
        assert run.query("PRAGMA integrity_check") == [("ok",)]
    assert [file.name for file in path.parent.iterdir()] == ["run.db"]
    with Run(path, write=True):  # the right to write was given back
        pass


def test_a_file_that_is_deleted_after_the_last_record(tmp_path: Path) -> None:
    path = tmp_path / "out" / "run.db"
    path.parent.mkdir()
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 3)
    assert monitor.flush()
    shutil.rmtree(path.parent)
    assert monitor.close()
    assert steps_of(path) == set(range(4))
    assert "made again" in moved_note(path)


AT_EXIT = """
import shutil, sys
from pathlib import Path
from tests.live.small_training import monitored, train
path = Path(sys.argv[1])
model, optimizer, monitor = monitored(path)
train(model, optimizer, 3)
monitor.flush()
shutil.rmtree(path.parent)
train(model, optimizer, 2)
"""


@pytest.mark.slow
def test_a_program_that_ends_without_closing(tmp_path: Path) -> None:
    path = tmp_path / "out" / "run.db"
    path.parent.mkdir()
    subprocess.run([sys.executable, "-c", AT_EXIT, str(path)], cwd=ROOT, check=True, timeout=120)
    assert steps_of(path) == set(range(6))


@pytest.mark.parametrize("copied", [True, False], ids=["a copy", "another run"])
def test_another_file_at_the_path_is_never_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, copied: bool
) -> None:
    path, other = tmp_path / "run.db", tmp_path / "other.db"
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 3)
    assert monitor.flush()
    if copied:
        shutil.copy(path, other)
    else:
        Run.create(other).close()
    contents = other.read_bytes()
    other.replace(path)
    train(model, optimizer, 2)
    assert monitor.flush()
    train(model, optimizer, 1)
    assert monitor.close()
    beside = tmp_path / "run-1.db"
    assert path.read_bytes() == contents
    assert steps_of(beside) == set(range(7))
    assert f"this training goes on in {beside}" in caplog.text
    assert moved_note(beside) in caplog.text
    assert not lock_of(path).exists() and not lock_of(beside).exists()


def test_a_name_beside_the_path_that_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 1)
    assert monitor.flush()
    (tmp_path / "run-1.db").write_text("something else")
    (tmp_path / "new").write_text("not a run file")
    (tmp_path / "new").replace(path)
    train(model, optimizer, 1)
    assert monitor.close()
    assert steps_of(tmp_path / "run-2.db") == {0, 1, 2}
    assert (tmp_path / "run-1.db").read_text() == "something else"
    assert path.read_text() == "not a run file"


OTHER_WRITER = """
import sys
from normscope.run import Run, ScalarRow
run = Run.create(sys.argv[1])
with run.transaction():
    run.write([ScalarRow(1, "loss", 1.0)])
print("held", flush=True)
sys.stdin.read()
"""


def test_another_process_that_takes_the_path(tmp_path: Path) -> None:
    """The folder was deleted, its lock with it, and a second training began there."""
    path = tmp_path / "out" / "run.db"
    path.parent.mkdir()
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 3)
    assert monitor.flush()
    shutil.rmtree(path.parent)
    path.parent.mkdir()
    command = [sys.executable, "-c", OTHER_WRITER, str(path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        contents = path.read_bytes()
        train(model, optimizer, 2)
        assert monitor.close()
        assert path.read_bytes() == contents
        assert str(other.pid) in lock_of(path).read_text()
        other.kill()
    assert steps_of(path.with_name("run-1.db")) == set(range(6))


def test_a_lock_without_a_file_at_the_path(tmp_path: Path) -> None:
    """Another process has the right to write there and has written nothing yet."""
    path = tmp_path / "out" / "run.db"
    path.parent.mkdir()
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 1)
    assert monitor.flush()
    shutil.rmtree(path.parent)
    path.parent.mkdir()
    program = "import sys\nfrom normscope.writer_lock import WriterLock\nlock = WriterLock(sys.argv[1])\n"
    program += "print('held', flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        train(model, optimizer, 1)
        assert monitor.close()
        other.kill()
    assert not path.exists()
    assert steps_of(path.with_name("run-1.db")) == {0, 1, 2}


def test_a_folder_that_cannot_be_made_again_for_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "out" / "run.db"
    path.parent.mkdir()
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 3)
    assert monitor.flush()
    shutil.rmtree(path.parent)
    path.parent.write_text("in the way")
    train(model, optimizer, 2)
    assert not monitor.flush(timeout=0.6)
    assert caplog.text.count("training goes on, records are kept in memory") == 1
    path.parent.unlink()
    assert monitor.close()
    assert steps_of(path) == set(range(6))
    assert "works again" in caplog.text


@pytest.mark.slow
def test_a_file_that_is_deleted_while_it_cannot_be_written(tmp_path: Path) -> None:
    """What is open is not closed after a failure: it may be the only file left."""
    path = tmp_path / "run.db"
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 3)
    assert monitor.flush()
    with Run(path) as reader:
        reader.query("BEGIN")
        reader.query("SELECT count(*) FROM weight")  # a reader that stays keeps the writer from committing
        train(model, optimizer, 2)
        assert not monitor.flush(timeout=2.5)
        path.unlink()
    assert monitor.close()
    assert steps_of(path) == set(range(6))


def test_a_file_that_cannot_be_brought_back_is_lost_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "out" / "run.db"
    path.parent.mkdir()
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 1)
    assert monitor.flush()
    shutil.rmtree(path.parent)
    path.parent.write_text("in the way")
    assert not monitor.close(timeout=0.3)
    assert "could not be brought back and is lost" in caplog.text


# -- being killed ----------------------------------------------------------------------

KILLED = """
import sys, time
from pathlib import Path
from tests.live.small_training import monitored, train
path = Path(sys.argv[1])
model, optimizer, monitor = monitored(path)
train(model, optimizer, 200)
print(monitor.state_dict()["step"], flush=True)
train(model, optimizer, 3)
time.sleep(60)
"""


@pytest.mark.slow
def test_a_process_that_is_killed_after_a_checkpoint_has_lost_nothing_before_it(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "200\n"
        process.send_signal(signal.SIGKILL)
    assert set(range(201)) <= steps_of(path)
    model, optimizer, monitor = monitored(path, step=200)  # its lock is of a process that is gone
    train(model, optimizer, 2)
    assert monitor.close()
    assert steps_of(path) == set(range(203))


def test_a_record_is_seen_without_being_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 1)
    assert monitor.flush()
    train(model, optimizer, 3)
    end = time.monotonic() + 60
    while steps_of(path) != set(range(5)) and time.monotonic() < end:
        time.sleep(0.05)
    assert steps_of(path) == set(range(5))
    monitor.close()


def test_the_lock_of_the_file_is_that_of_the_path(tmp_path: Path) -> None:
    """After a file came back, a second writer of this machine is still refused."""
    path = tmp_path / "out" / "run.db"
    path.parent.mkdir()
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 1)
    assert monitor.flush()
    shutil.rmtree(path.parent)
    train(model, optimizer, 1)
    assert monitor.flush()
    assert str(os.getpid()) in lock_of(path).read_text()
    program = "import sys\nfrom normscope.run import Run\nRun.create(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    assert f"is being written by process {os.getpid()}" in done.stderr
    monitor.close()
    WriterLock(path).release()
