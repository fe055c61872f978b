"""Scans on other processes: each opens the checkpoints itself, and the rows are those of threads."""

import contextlib
import json
import os
import struct
from concurrent.futures import Future
from dataclasses import replace

import pytest
from safetensors.torch import save, save_file

from normscope.engines.node_check import check_nodes
from normscope.engines.node_needs import NodeNeeds, SameFile
from normscope.engines.nodes import Node
from normscope.engines.pool import LocalExecutor
from normscope.engines.prepared_call import PreparedCall
from normscope.errors import CheckpointError, EngineError, NodeProblem, ReplacedCheckpoint, UsageError
from normscope.weights.scan import measuring
from normscope.weights.scan.checkpoint_place import CheckpointPlace
from normscope.weights.scan.read_plan import parse_bandwidth
from normscope.weights.scan.scan import scan
from tests.checkpoints.test_fsspec import s3  # noqa: F401 (a fixture)
from tests.checkpoints.test_hub import hub  # noqa: F401 (a fixture)
from tests.cli.calling import call, call_json
from tests.weights.test_scan import random_walk, rows_of, save_series

STEPS = [0, 10, 20, 40]


@pytest.fixture
def series(tmp_path):
    return save_series(tmp_path / "series", random_walk(STEPS))


class Pool(LocalExecutor):
    """A pool whose `before` is called once, before the next call is handed out."""

    before = staticmethod(lambda: None)

    def submit(self, *args, **kwargs):
        action = self.before
        self.before = lambda: None
        action()
        return super().submit(*args, **kwargs)


class Nodes:
    """A pool as a cluster of two nodes."""

    def __init__(self, pool):
        self.submit = pool.submit

    def nodes(self):
        return [Node("1", "alpha"), Node("2", "beta")]

    def submit_to(self, node, fn, *args):
        return self.submit(fn, *args)


@pytest.fixture(scope="module")
def pool():
    """Starting a process takes a second: the tests share one."""
    with Pool(1) as shared:
        yield shared


def test_a_relative_path_on_processes(tmp_path, series, pool, monkeypatch):
    """Relative paths mean the caller's folder, wherever a worker was started."""
    scan(series, tmp_path / "threads.db").close()
    monkeypatch.chdir(tmp_path)
    pool.submit(os.chdir, "/").result()
    scan("series", tmp_path / "pool.db", engine=pool).close()
    assert rows_of(tmp_path / "pool.db") == rows_of(tmp_path / "threads.db")


def test_the_command_line_takes_an_engine(tmp_path, series):
    call_json("scan", series, "--run", tmp_path / "threads.db")
    call_json("scan", series, "--run", tmp_path / "named.db", "--engine", "processes:2")
    assert rows_of(tmp_path / "named.db") == rows_of(tmp_path / "threads.db")


def test_a_resumed_scan_on_an_engine_measures_the_rest(tmp_path, series, pool):
    later = series / "step_40.safetensors"
    kept = later.read_bytes()
    later.unlink()
    scan(series, tmp_path / "a.db").close()
    later.write_bytes(kept)
    scan(series, tmp_path / "a.db", engine=pool).close()
    scan(series, tmp_path / "b.db").close()
    assert rows_of(tmp_path / "a.db") == rows_of(tmp_path / "b.db")


@pytest.mark.slow
def test_a_repository_on_processes(tmp_path, hub, pool, monkeypatch):  # noqa: F811
    """Workers read the commits that the scan found, although the branches have moved on."""
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    source = {"source": "hf://owner/name", "revisions": "step*"}
    scan(run=tmp_path / "threads.db", **source).close()
    revisions = hub.repositories["owner/name"]

    def move():
        for name in ("step0", "step512", "step1000"):
            revisions[name] = {"model.safetensors": save(random_walk([0])[0])}

    pool.before = move
    scan(run=tmp_path / "pool.db", engine=pool, **source).close()
    assert pool.before is not move
    assert len(rows_of(tmp_path / "pool.db")) > 10
    assert rows_of(tmp_path / "pool.db") == rows_of(tmp_path / "threads.db")


def test_a_file_of_a_repository_is_a_source(tmp_path, hub):  # noqa: F811
    with scan("hf://owner/name@step512/model.safetensors", tmp_path / "run.db") as run:
        assert [row.source for row in run.checkpoints()] == ["hf://owner/name@step512/model.safetensors"]


@pytest.mark.slow
def test_objects_of_s3_on_processes(tmp_path, s3):  # noqa: F811
    scan("s3://bucket/run", tmp_path / "threads.db").close()
    scan("s3://bucket/run", tmp_path / "pool.db", engine="processes:2").close()
    assert rows_of(tmp_path / "pool.db") == rows_of(tmp_path / "threads.db")


def test_other_contents_under_the_same_path_are_refused(tmp_path, series, pool):
    """A node with an old copy, or a file that is replaced: never rows of two versions."""

    def put_another():
        save_file(random_walk(STEPS, seed=7)[20], series / "step_20.safetensors")

    pool.before = put_another
    with pytest.raises(ReplacedCheckpoint, match=r"step_20.* has other contents"):
        scan(series, tmp_path / "run.db", engine=pool)


def test_small_tensors_are_handed_out_together(tmp_path, series, pool):
    handed = []

    class Counting:
        workers = 1

        def submit(self, fn, *args):
            handed.append(args)
            return pool.submit(fn, *args)

    scan(series, tmp_path / "run.db", engine=Counting()).close()
    names = [each.part.tensor.name for parts, _ in handed for each in parts]
    assert 4 <= len(handed) < 10
    assert len(names) == len(set(names)) > 5


def test_an_engine_that_breaks_is_said(tmp_path, series):
    class Breaking:
        def submit(self, fn, *args):
            broken = Future()
            broken.cancel()
            broken.set_running_or_notify_cancel()
            return broken

    with pytest.raises(EngineError, match="run the same scan again"):
        scan(series, tmp_path / "run.db", engine=Breaking())


@pytest.mark.slow
def test_other_processors_are_noted(tmp_path, series, monkeypatch):
    """Vectors of another width add in another order: the run file says so."""
    with scan(series, tmp_path / "a.db", engine="processes:1") as run:
        assert not any("last digits" in note for note in run.meta["notes"])
    monkeypatch.setenv("NORMSCOPE_INSTRUCTION_SET", "baseline")  # for the workers
    with scan(series, tmp_path / "b.db", engine="processes:1") as run:
        if "baseline" in measuring.backend() or measuring.backend() == "torch":
            pytest.skip("this machine has only one instruction set")
        assert "last digits may differ" in run.meta["notes"][-1]
        assert "baseline" in run.meta["kernel"]


# -- nodes -------------------------------------------------------------------------------


def test_every_node_is_asked_and_named(tmp_path, series, pool):
    place = CheckpointPlace(str(series / "step_0.safetensors"), "another digest")
    text = tmp_path / "text.txt"
    text.write_text("some words")
    same = SameFile.of(text)
    cluster = Nodes(pool)
    assert check_nodes(cluster, NodeNeeds((same,), torch="")) == 2
    for needs, words in (
        (NodeNeeds(normscope="9.9"), r"node alpha has normscope .* and this machine has 9\.9: install"),
        (NodeNeeds(python="3.0.1"), "runs Python .* and this machine 3.0.1"),
        (NodeNeeds(torch="1.0.0"), "has torch .* and this machine 1.0.0"),
        (NodeNeeds((SameFile("/none/text.txt", 1, ""),)), "cannot read /none/text.txt: No such file"),
        (NodeNeeds((replace(same, size=99),)), r"has another .*text.txt \(10 bytes, here 99\)"),
        (NodeNeeds((place,)), "finds other contents at .*step_0"),
        (NodeNeeds((CheckpointPlace("/none/x.pt", ""),)), "cannot read a checkpoint that is read here"),
    ):
        with pytest.raises(NodeProblem, match=words) as caught:
            check_nodes(cluster, needs)
        assert "node alpha" in str(caught.value) and "1 more nodes" in str(caught.value)


def test_engines_without_nodes_are_checked_by_their_first_call(pool):
    needs = NodeNeeds((SameFile("/none/text.txt", 1, ""),))
    assert check_nodes(pool, needs) == 0
    with pytest.raises(NodeProblem, match=r"^node \S+ cannot read /none/text.txt"):
        pool.submit(PreparedCall(len, needs), "abc").result()
    assert pool.submit(PreparedCall(len, NodeNeeds()), "abc").result() == 3


def test_nothing_is_measured_if_a_node_lacks_a_checkpoint(tmp_path, series, pool):
    pool.before = (series / "step_0.safetensors").unlink
    with pytest.raises(NodeProblem, match="node alpha cannot read a checkpoint"):
        scan(series, tmp_path / "run.db", engine=Nodes(pool))
    assert not rows_of(tmp_path / "run.db")


# -- planning -----------------------------------------------------------------------------


def sparse(path, nbytes):
    """A safetensors file of one large tensor that takes no room on the disk."""
    shape = [nbytes // 2 // 1000, 1000]
    header = json.dumps({"w": {"dtype": "BF16", "shape": shape, "data_offsets": [0, nbytes]}}).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        with contextlib.suppress(OSError):
            file.truncate(8 + len(header) + nbytes)


@pytest.mark.parametrize("count", [100, 250])
def test_ten_terabytes_are_planned_from_headers(tmp_path, count):
    each = 10**13 // count
    for step in range(count):
        sparse(tmp_path / f"step_{step}.safetensors", each)
    if (tmp_path / "step_0.safetensors").stat().st_size < each:
        pytest.skip("this disk has no sparse files of that size")
    found = call_json("scan", tmp_path, "--dry-run", "--workers", 64, "--bandwidth", "200MB/s")
    assert found["bytes"] == 10**13
    assert found["plan"]["seconds"] == pytest.approx(10**13 / (64 * 2e8))
    assert found["estimated"] is (count > 200)
    assert any("estimated from the first header" in note for note in found["notes"]) is (count > 200)
    if count == 100:
        printed = call("scan", tmp_path, "--dry-run", "--workers", 64, "--bandwidth", "200MB/s").stdout
        assert "64 workers, each reading 200MB/s: 13 min 1 s" in " ".join(printed.split())


def test_requests_are_counted_for_remote_places(hub):  # noqa: F811
    found = call_json("scan", "hf://owner/name", "--revisions", "step*", "--dry-run")
    assert found["requests"] == 3 * 5
    assert found["plan"] is None


@pytest.mark.parametrize("text", ["1", "GB/s", "-1GB/s", "0GB/s", "1GB", "1 XB/s", "nan"])
def test_bandwidths_have_a_unit(text):
    with pytest.raises(UsageError, match="such as 1GB/s"):
        parse_bandwidth(text)


def test_places_are_not_guessed(tmp_path):
    with pytest.raises(CheckpointError):
        CheckpointPlace(str(tmp_path / "nothing.safetensors"), "").open()
