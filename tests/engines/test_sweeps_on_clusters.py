"""The same sweep on a real Ray cluster of two nodes and on Dask: same numbers, whatever dies.

These start clusters, so they are slow; each needs its package.
"""

from contextlib import contextmanager

import pytest

from normscope.engines.pool import LocalExecutor
from normscope.engines.ray_executor import RayExecutor
from normscope.lab.sweep.sweep import sweep
from tests.engines.clusters import WhenBegun, kill_a_ray_worker, ray_cluster
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
    with ray_cluster() as made:
        yield made


@contextmanager
def joined(cluster):
    import ray

    with RayExecutor(cluster.address) as executor:
        # the workers need this checkout on their path, which pytest put on ours
        yield executor
    assert not ray.is_initialized()


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
        disturb = WhenBegun(kill_a_ray_worker, 0.3)
        result = sweep(small_sweep(steps=STEPS), tmp_path, engine=executor, progress=disturb)
    assert disturb.done
    assert (essence(result), recorded(result)) == wanted


@pytest.mark.slow
@ray_warnings
def test_a_killed_ray_node_costs_nothing(tmp_path, cluster, wanted):
    with joined(cluster) as executor:
        disturb = WhenBegun(lambda: cluster.remove_node(cluster.nodes[0], allow_graceful=False), 0.3)
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
