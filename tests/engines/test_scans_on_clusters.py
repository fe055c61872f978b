"""Scans on real clusters: the rows of threads to the last bit, whatever dies. Slow: clusters are started."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import save_file

from normscope.engines.ray_executor import RayExecutor
from normscope.errors import NodeProblem
from normscope.weights.scan import measuring
from normscope.weights.scan.scan import scan
from tests.engines.clusters import (
    WhenBegun,
    dask_cluster,
    kill_a_ray_worker,
    processes_of,
    ray_cluster,
)
from tests.weights.test_scan import rows_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray's and Dask's own warnings
CHECKPOINTS = 200


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    """200 checkpoints of a model of 60 tensors."""
    folder = tmp_path_factory.mktemp("series")
    generator = torch.Generator().manual_seed(0)
    state = {f"h.{i}.mlp.weight": torch.randn(128, 96, generator=generator) for i in range(60)}
    for step in range(CHECKPOINTS):
        save_file(state, folder / f"step_{step}.safetensors")
        state = {k: v + 0.01 * torch.randn(v.shape, generator=generator) for k, v in state.items()}
    return folder


@pytest.fixture(scope="module")
def wanted(series, tmp_path_factory):
    path = tmp_path_factory.mktemp("threads") / "run.db"
    scan(series, path).close()
    rows = rows_of(path)
    assert len(rows) == 60 * CHECKPOINTS
    return rows


@pytest.fixture(autouse=True)
def one_tensor_per_call(monkeypatch):
    monkeypatch.setattr(measuring, "TOGETHER", 1)


@pytest.mark.parametrize("what", ["nothing", "worker", "node"])
def test_ray_gives_the_same_rows_whatever_dies(tmp_path, series, wanted, what, monkeypatch):
    monkeypatch.chdir(series.parent)
    with ray_cluster() as cluster:
        actions = {
            "nothing": lambda: None,
            "worker": kill_a_ray_worker,
            "node": lambda: cluster.remove_node(cluster.nodes[0], allow_graceful=False),
        }
        disturb = WhenBegun(actions[what])
        scan(series.name, tmp_path / "run.db", engine=f"ray:{cluster.address}", progress=disturb).close()
    assert disturb.done
    assert rows_of(tmp_path / "run.db") == wanted


@pytest.mark.parametrize("dies", [False, True])
def test_dask_gives_the_same_rows(tmp_path, series, wanted, dies):
    with dask_cluster() as (address, workers):
        disturb = WhenBegun(workers[0].kill if dies else lambda: None)
        scan(series, tmp_path / "run.db", engine=f"dask:{address}", progress=disturb).close()
    assert disturb.done
    assert rows_of(tmp_path / "run.db") == wanted


def test_a_ray_node_without_the_checkpoints_is_named(tmp_path, series):
    """What a node does not have is found before anything is measured."""
    with ray_cluster() as cluster, RayExecutor(cluster.address) as executor:
        moved = series.rename(series.with_name("moved"))
        try:
            copied = tmp_path / "series"
            copied.symlink_to(moved)

            class Elsewhere:
                nodes = executor.nodes
                submit = executor.submit

                def submit_to(self, node, fn, *args):
                    copied.unlink(missing_ok=True)  # as if it were mounted on this machine only
                    return executor.submit_to(node, fn, *args)

            with pytest.raises(NodeProblem, match=r"node \S+ \([0-9a-f]{8}\) cannot read a checkpoint"):
                scan(copied, tmp_path / "run.db", engine=Elsewhere())
        finally:
            moved.rename(series)


INTERRUPTED = """
import sys
from normscope.weights.scan import measuring
from normscope.weights.scan.scan import scan
measuring.TOGETHER = 1
try:
    scan(sys.argv[1], sys.argv[2], engine=sys.argv[3], progress=lambda *_: print("under way", flush=True))
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.stdin.read()  # the driver lives on: its tasks must be gone nevertheless
"""


def test_ctrl_c_ends_the_tasks_of_ray(tmp_path, series, wanted):
    with ray_cluster() as cluster:
        command = [sys.executable, "-c", INTERRUPTED, str(series), str(tmp_path / "run.db")]
        driver = subprocess.Popen(
            [*command, f"ray:{cluster.address}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert driver.stdout.readline() == "under way\n"
        driver.send_signal(signal.SIGINT)
        assert "interrupted\n" in driver.stdout
        deadline = time.monotonic() + 30
        while processes_of(b"ray::call_function") and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not processes_of(b"ray::call_function")
        driver.communicate()
    scan(series, tmp_path / "run.db").close()
    assert rows_of(tmp_path / "run.db") == wanted
    assert os.environ.get("RAY_ADDRESS") is None
