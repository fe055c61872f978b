"""The same sweep on a real Ray cluster of two nodes and on Dask: same numbers, whatever dies.

These start clusters, so they are slow; each needs its package.
"""

import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from normscope.engines.pool import LocalExecutor
from normscope.engines.ray_executor import RayExecutor
from normscope.lab.sweep.sweep import sweep
from tests.lab.sweeping import essence, recorded, small_sweep

STEPS = 400
ray_warnings = pytest.mark.filterwarnings("ignore")  # Ray's and Dask's own, in their own code


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """What undisturbed local processes give."""
    with LocalExecutor(2) as pool:
        result = sweep(small_sweep(steps=STEPS), tmp_path_factory.mktemp("local"), engine=pool)
    return essence(result), recorded(result)


@pytest.fixture
def cluster():
    """A head without cores, and two nodes with one each."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 80_000_000})
    made.nodes = [made.add_node(num_cpus=1, object_store_memory=80_000_000) for _ in range(2)]
    yield made
    made.shutdown()


@contextmanager
def joined(cluster):
    import ray

    with RayExecutor(cluster.address) as executor:
        # the workers need this checkout on their path, which pytest put on ours
        yield executor
    assert not ray.is_initialized()


class WhenBegun:
    """Does something once, as soon as cells are under way and one has finished."""

    def __init__(self, action):
        self.action = action
        self.done = False

    def __call__(self, done, total, note):
        if done == 1 and not self.done:
            self.done = True
            time.sleep(0.3)  # let the next cell begin
            self.action()


def worker_pids():
    """Processes of this user that run a Ray task of ours."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"ray::call_function" in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def kill_a_worker():
    pids = worker_pids()
    assert pids, "no Ray worker was under way"
    os.kill(pids[0], signal.SIGKILL)


@pytest.mark.slow
@ray_warnings
def test_ray_gives_the_same_numbers(tmp_path, cluster, wanted):
    with joined(cluster) as executor:
        result = sweep(small_sweep(steps=STEPS), tmp_path, engine=executor)
    assert (essence(result), recorded(result)) == wanted


@pytest.mark.slow
@ray_warnings
def test_a_killed_ray_worker_costs_nothing(tmp_path, cluster, wanted):
    with joined(cluster) as executor:
        disturb = WhenBegun(kill_a_worker)
        result = sweep(small_sweep(steps=STEPS), tmp_path, engine=executor, progress=disturb)
    assert disturb.done
    assert (essence(result), recorded(result)) == wanted


@pytest.mark.slow
@ray_warnings
def test_a_killed_ray_node_costs_nothing(tmp_path, cluster, wanted):
    with joined(cluster) as executor:
        disturb = WhenBegun(lambda: cluster.remove_node(cluster.nodes[0], allow_graceful=False))
        result = sweep(small_sweep(steps=STEPS), tmp_path, engine=executor, progress=disturb)
    assert disturb.done
    assert (essence(result), recorded(result)) == wanted


@pytest.mark.slow
@ray_warnings
def test_dask_gives_the_same_numbers(tmp_path, wanted):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor(pure=False) as executor,
    ):
        result = sweep(small_sweep(steps=STEPS), tmp_path, engine=executor)
    assert (essence(result), recorded(result)) == wanted


@pytest.mark.slow
@ray_warnings
def test_submitit_gives_the_same_numbers(tmp_path, wanted):
    """Its jobs are not standard futures; `result()` is enough."""
    submitit = pytest.importorskip("submitit")
    executor = submitit.LocalExecutor(folder=tmp_path / "logs")
    executor.update_parameters(timeout_min=10)
    result = sweep(small_sweep(steps=STEPS), tmp_path / "out", engine=executor)
    assert (essence(result), recorded(result)) == wanted
