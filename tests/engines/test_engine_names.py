"""Names of engines: one module reads them, for scans, sweeps and replications."""

import pytest

from normscope.engines.engine import check_engine, count_workers, named_executor
from normscope.engines.engine_names import EngineName, parse_engine
from normscope.engines.pool import LocalExecutor
from normscope.errors import EngineError, UsageError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, EngineName("processes")),
        ("processes", EngineName("processes")),
        ("processes:3", EngineName("processes", 3)),
        ("local:3", EngineName("processes", 3)),
        ("ray", EngineName("ray")),
        ("ray://head:10001", EngineName("ray", address="head:10001", client=True)),
        ("ray:head:6379", EngineName("ray", address="head:6379")),
        ("dask:head:8786", EngineName("dask", address="tcp://head:8786")),
        ("dask:tls://10.0.0.1:8786", EngineName("dask", address="tls://10.0.0.1:8786")),
        ("dask:[::1]:8786", EngineName("dask", address="tcp://[::1]:8786")),
    ],
)
def test_names(name, expected):
    assert parse_engine(name) == expected
    check_engine(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("slurm", "an engine is processes"),
        ("", "an engine is"),
        ("threads:2", "an engine is processes"),
        ("processes:many", "a number of processes"),
        ("processes:0", "a number of processes"),
        ("local:-1", "local:4, but got local:-1"),
        ("processes:²", "a number of processes"),
        ("ray://headnode", "HOST:PORT"),
        ("ray:6379", "HOST:PORT"),
        ("dask", "dask needs the address"),
        ("dask:", "dask needs the address"),
        ("dask:scheduler", "HOST:PORT"),
        (7, "or an executor; got 7"),
    ],
)
def test_other_names_are_refused(name, words):
    with pytest.raises(UsageError, match=words):
        check_engine(name)


def test_an_executor_of_a_name():
    with named_executor("processes:3") as executor:
        assert isinstance(executor, LocalExecutor)
        assert count_workers(executor) == 3


@pytest.mark.parametrize("name", ["ray://localhost:9", "ray:localhost:9", "dask:localhost:9"])
def test_nobody_at_that_address(name):
    pytest.importorskip("ray" if name.startswith("ray") else "distributed")
    with pytest.raises(EngineError, match="localhost:9: Connection refused; check that the cluster runs"):
        named_executor(name)
