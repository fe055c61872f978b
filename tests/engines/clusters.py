"""Real clusters on this machine: Ray with two nodes, Dask as a scheduler and its workers."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.cluster import two_nodes


@contextmanager
def ray_cluster():
    """A head without cores, and two nodes with one each."""
    pytest.importorskip("ray")
    with two_nodes() as cluster:
        yield cluster


@contextmanager
def dask_cluster(workers=2):
    """A scheduler and workers, as a user starts them: by command. Yields the address and the processes."""
    pytest.importorskip("distributed")
    place = Path(sys.executable).parent
    head = subprocess.Popen(
        [place / "dask", "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"],
        stderr=subprocess.PIPE,
        text=True,
    )
    started = [head]
    try:
        address = next(found[1] for line in head.stderr if (found := re.search(r"(tcp://[\d.]+:\d+)", line)))
        options = ["--nthreads", "1", "--no-dashboard", "--no-nanny"]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = [place / "dask", "worker", address, *options]
        started += [subprocess.Popen(command, **silent) for _ in range(workers)]
        yield address.removeprefix("tcp://"), started[1:]
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()
        head.stderr.close()


def processes_of(words):
    """Processes of this machine whose command line contains some words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def kill_a_ray_worker():
    deadline = time.monotonic() + 5
    while not (pids := processes_of(b"ray::call_function")):
        assert time.monotonic() < deadline, "no Ray worker was under way"
    os.kill(pids[0], signal.SIGKILL)


class WhenBegun:
    """Does something once, as soon as work is under way and some of it is finished."""

    def __init__(self, action, after=0.0):
        self.action, self.after = action, after
        self.done = False

    def __call__(self, done, total, note):
        if 0 < done < total and not self.done:
            self.done = True
            time.sleep(self.after)  # let the next piece of work begin
            self.action()
