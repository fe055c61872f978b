"""Another program truncates a checkpoint while it is summed: one sentence, and nothing else is lost."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest

from normscope.checkpoints.storage.local import LocalFile
from normscope.errors import CheckpointError, CorruptCheckpoint
from normscope.run import Run
from normscope.weights.reading import walk
from normscope.weights.scan.scan import scan
from normscope.weights.sums import statistics

pytestmark = pytest.mark.skipif(statistics._kernel is None, reason="only the kernel is given mapped memory")
SIZE = 1 << 20  # float32 elements

CRASH = """
import faulthandler, mmap, os, sys
from array import array
from normscope.weights.sums import _kernel
if sys.argv[2] == "faulthandler":
    faulthandler.enable()
file = open(sys.argv[1], "r+b")
lost = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
kept = memoryview(bytes(len(lost)))
os.truncate(sys.argv[1], 4096)
for _ in range(3):
    try:
        totals = memoryview(array("d", bytes(96)))
        _kernel.chain(1, None, kept, [kept, memoryview(lost)], b"\\1\\1", 1 << 16, totals)
    except _kernel.Unreadable as error:
        print(*error.args)
if sys.argv[3] == "outside":
    lost[len(lost) - 1]
"""


def save(folder, step, seed):
    values = np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)
    np.savez(folder / f"step_{step}.npz", w=values, b=values[:7])


@pytest.mark.parametrize("which", [1, 2, 3])
def test_a_file_truncated_while_it_is_summed(tmp_path, monkeypatch, which):
    """Truncated between the mapping and the sums: the error names it, earlier rows stay, scan goes on."""
    folder = tmp_path / "runs"
    folder.mkdir()
    for step in (1, 2, 3):
        save(folder, step, step)
    with scan(folder, tmp_path / "run.db") as run:
        before = run.query("SELECT * FROM weight")
    save(folder, 4, 4)
    lost = folder / f"step_{which}.npz"
    whole, times = lost.read_bytes(), lost.stat()
    add = statistics.RunningSums.add

    def truncate_first(self, stretch, *rest):
        if len(stretch.sources[0]) > 100:
            os.truncate(lost, 5000)
        add(self, stretch, *rest)

    monkeypatch.setattr(walk.RunningSums, "add", truncate_first)
    if which != 2:  # step 2 is not read again
        with pytest.raises(CorruptCheckpoint, match=rf"step_{which}.npz became shorter while"):
            scan(folder, tmp_path / "run.db")
    with Run(tmp_path / "run.db") as run:
        assert set(before) <= set(run.query("SELECT * FROM weight"))
    monkeypatch.undo()
    lost.write_bytes(whole)
    os.utime(lost, ns=(times.st_atime_ns, times.st_mtime_ns))
    with scan(folder, tmp_path / "run.db") as again, scan(folder, tmp_path / "new.db") as new:
        rows = "SELECT step, prev_step, sumsq, dot, sumsq_delta, dot_init FROM weight ORDER BY 1, 2, 3"
        assert again.query(rows) == new.query(rows)


def child(path, *words):
    path.write_bytes(bytes(1 << 20))
    return subprocess.run(
        [sys.executable, "-c", CRASH, path, *words], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("handler", ["none", "faulthandler"])
def test_lost_memory_is_an_exception_again_and_again(tmp_path, handler):
    done = child(tmp_path / "x", handler, "inside")
    assert (done.returncode, done.stdout) == (0, "1 0\n" * 3), done.stderr


@pytest.mark.parametrize("handler", ["none", "faulthandler"])
def test_a_bus_error_elsewhere_still_goes_to_the_earlier_handler(tmp_path, handler):
    done = child(tmp_path / "x", handler, "outside")
    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "1 0\n" * 3)
    assert ("Fatal Python error: Bus error" in done.stderr) == (handler == "faulthandler")


def test_what_is_read_outside_the_kernel_is_a_copy(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(bytes(range(256)) * 400)
    file = LocalFile(path)
    copied = file.read(0, file.size)
    os.truncate(path, 10)
    assert copied == bytes(range(256)) * 400
    for read in (file.read, file.peek, file.borrow):
        with pytest.raises(CorruptCheckpoint, match="became shorter"):
            read(0, file.size)


def rows(run):
    with Run(run) as found:
        return found.query(
            "SELECT step, prev_step, sumsq, dot, sumsq_delta, dot_init FROM weight ORDER BY 1, 2, 3"
        )


@pytest.mark.parametrize("way", ["map", "read", "auto"])
def test_a_file_written_in_place_while_it_is_summed(tmp_path, monkeypatch, way):
    """No shorter, so nothing is lost; but its sums may be of two versions: said, and measured again."""
    folder = tmp_path / "runs"
    folder.mkdir()
    for step in (1, 2):
        save(folder, step, step)
    monkeypatch.setenv("NORMSCOPE_READ", way)
    add = statistics.RunningSums.add

    def write_after(self, *given):
        add(self, *given)
        with (folder / "step_2.npz").open("r+b") as file:
            file.seek(2_000_000)
            file.write(bytes(100_000))

    with monkeypatch.context() as patched:
        patched.setattr(walk.RunningSums, "add", write_after)
        with pytest.raises(CheckpointError, match=r"step_2.npz was replaced or changed while"):
            scan(folder, tmp_path / "run.db")
    scan(folder, tmp_path / "run.db").close()
    scan(folder, tmp_path / "new.db").close()
    assert rows(tmp_path / "run.db") == rows(tmp_path / "new.db")


def test_a_file_deleted_while_it_is_summed_is_read_to_its_end(tmp_path, monkeypatch):
    """A training that keeps the last few checkpoints deletes them at any time."""
    folder = tmp_path / "runs"
    folder.mkdir()
    values = np.random.default_rng(0).standard_normal(9_000_000).astype(np.float32)
    for step in (1, 2):
        np.savez(folder / f"step_{step}.npz", w=values * step)
    scan(folder, tmp_path / "whole.db").close()
    add = statistics.RunningSums.add

    def delete_after(self, *given):
        add(self, *given)
        (folder / "step_2.npz").unlink(missing_ok=True)

    monkeypatch.setattr(walk.RunningSums, "add", delete_after)
    with suppress(CheckpointError):  # the samples of the audit are read last
        scan(folder, tmp_path / "run.db", workers=1).close()
    assert rows(tmp_path / "run.db") == rows(tmp_path / "whole.db")
