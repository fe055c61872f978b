"""A run file that cannot be written for a while, that others read meanwhile, or that another training has."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch.distributed as dist
import torch.multiprocessing as mp

from normscope.errors import RunFileBusy
from normscope.live.monitor import Monitor
from normscope.live.writing import journal
from normscope.run import Run
from normscope.theory.measures.live_status import live_state
from tests.groups import leave_group
from tests.live.small_training import monitored, rows, sgd, tiny, train
from tests.live.test_monitor_file import HOLDER

ROOT = Path(__file__).parents[2]


def steps_of(path: Path) -> set[int]:
    return {step for step, _ in rows(path)}


# -- a full disk -----------------------------------------------------------------------

SMALL_DISK = """
import subprocess, sys
from pathlib import Path
from tests.live.small_training import monitored, rows, train

disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], check=True)
ballast, path = disk / "ballast", disk / "run.db"

def fill():
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass

fill()  # the file cannot even be created
model, optimizer, monitor = monitored(path)
train(model, optimizer, 3)
assert not monitor.flush(timeout=0.5)
ballast.unlink()
assert monitor.flush(timeout=30)
assert {step for step, _ in rows(path)} == set(range(4))
fill()
train(model, optimizer, 300)
assert not monitor.flush(timeout=0.5)
assert monitor.state_dict() == {"step": 303}  # does not wait for the disk
train(model, optimizer, 20)
ballast.unlink()
assert monitor.close(timeout=30)
assert {step for step, _ in rows(path)} == set(range(324))
print("all there")
"""


def in_namespace(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command that may mount file systems, which nobody else sees."""
    return subprocess.run(
        ["unshare", "-rm", *command], cwd=ROOT, capture_output=True, text=True, timeout=180, check=False
    )


@pytest.mark.slow
def test_a_small_disk_that_fills_up_and_is_freed(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare to make a small disk with")
    if in_namespace("mount", "-t", "tmpfs", "none", str(disk)).returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    done = in_namespace(sys.executable, "-c", SMALL_DISK, str(disk))
    assert done.stdout == "all there\n", done.stderr
    assert done.stderr.count("training goes on, records are kept") == 2
    assert done.stderr.count("works again") == 2


@pytest.mark.slow
def test_what_does_not_fit_in_memory_is_thinned_and_said_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journal, "MEMORY", 1)  # 64 entries
    path = tmp_path / "run.db"
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 40)  # of an earlier training, which this one replaces
    assert monitor.close()
    (tmp_path / "away").mkdir()
    path.rename(tmp_path / "away" / "run.db")
    folder = tmp_path / "gone"
    model, optimizer, monitor = monitored(folder / "run.db")
    train(model, optimizer, 300)
    assert not monitor.flush(timeout=0.3)
    (tmp_path / "away").rename(folder)
    assert not monitor.close()  # something was lost
    found = steps_of(folder / "run.db")
    assert 300 in found and len(found) <= 64
    assert len({step for step in found if step < 150}) >= 5  # not only the newest
    with Run(folder / "run.db") as run:
        said = run.meta["monitor.lost"]
        assert run.meta["monitor.resumed"].startswith("training begins at step 0")  # this was not dropped
    assert said.startswith(f"{301 - len(found)} records and logged values of steps 0 to ")
    assert "lost" in caplog.text


# -- readers ---------------------------------------------------------------------------

READER = """
import sys, time
from normscope.run import Run
from normscope.rows import WeightRow
from normscope.theory.measures.live_status import live_state

print("ready", flush=True)
last = -1
while last < int(sys.argv[2]):
    with Run(sys.argv[1]) as run:
        state = live_state(run)
        assert state.step >= last, (state.step, last)
        last = state.step
        steps = run.table(WeightRow)["step"]
        assert len(steps) % 6 == 0, len(steps)  # whole records
print("read all", flush=True)
"""


@pytest.mark.slow
def test_a_program_that_reads_all_the_time(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 1)
    assert monitor.flush()
    command = [sys.executable, "-c", READER, str(path), "400"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None and reader.stdout.readline() == "ready\n"
        for _ in range(40):
            train(model, optimizer, 10)
            assert monitor.flush(60)
        out, err = reader.communicate(timeout=60)
    assert out == "read all\n", err
    assert monitor.close()
    assert steps_of(path) == set(range(402))


def test_a_reader_that_stays_delays_only_the_thread_that_writes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run.db"
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 2)
    assert monitor.flush()
    with Run(path) as reader:
        reader.query("BEGIN")
        before = reader.query("SELECT count(*) FROM weight")
        train(model, optimizer, 50)
        assert monitor.step == 52
        assert not monitor.flush(timeout=0.2)
        assert reader.query("SELECT count(*) FROM weight") == before
    assert monitor.close()
    assert steps_of(path) == set(range(53))


def test_a_report_during_a_transaction(tmp_path: Path) -> None:
    """Until the last moment of a transaction, readers see the file as it was before."""
    path = tmp_path / "run.db"
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 2)
    assert monitor.close()
    seen: list[int] = []

    def read() -> None:
        with Run(path) as run:
            seen.append(live_state(run).step)

    with Run(path, write=True) as run, run.transaction():
        run.delete_rows("weight", "step = 2")
        reader = threading.Thread(target=read)
        reader.start()
        reader.join(60)
        assert seen == [2]


# -- a second training -----------------------------------------------------------------


def _rank(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    model = tiny()
    try:
        Monitor(model, sgd(model), Path(folder) / "run.db")
        said = "nothing"
    except RunFileBusy as error:
        said = str(error)
    (Path(folder) / f"said-{rank}").write_text(said)
    leave_group()


@pytest.mark.slow
def test_every_rank_of_a_second_training_is_told_who_has_the_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run.db")]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        mp.spawn(_rank, args=(str(tmp_path),), nprocs=2)
        other.kill()
    said = {(tmp_path / f"said-{rank}").read_text() for rank in range(2)}
    assert len(said) == 1
    assert f"is being written by process {other.pid} on " in said.pop()
    (tmp_path / "rendezvous").unlink(missing_ok=True)
    mp.spawn(_rank, args=(str(tmp_path),), nprocs=2)  # the lock of a process that is gone
    assert {(tmp_path / f"said-{rank}").read_text() for rank in range(2)} == {"nothing"}
