"""Remote scans: the rows of a local one to the last bit, each byte once, few requests, any layout."""

import contextlib
import itertools
import sqlite3
import threading

import pytest
import torch
from safetensors.torch import save, save_file

from normscope.checkpoints.ranges import range_file, read_ahead
from normscope.checkpoints.ranges.read_ahead import ConnectionCount, ReadAhead
from normscope.checkpoints.storage import fsspec as fsspec_folders
from normscope.errors import CheckpointError
from normscope.weights.scan import stripes
from normscope.weights.scan.scan import scan

fsspec = pytest.importorskip("fsspec")
COLUMNS = "step, prev_step, name, sumsq, dot, sumsq_delta, dot_init, absmax, nonfinite"
SHAPES = {
    "embed": (700, 900),
    "h.0.w": (64, 640),
    "h.0.b": (64,),
    "h.1.w": (64, 640),
    "norm": (64,),
    "z": (3, 5),
}


def tensors(step, dtype=torch.float32, order=1):
    generator = torch.Generator().manual_seed(step)
    made = {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in SHAPES.items()}
    return dict(list(made.items())[::order])


def rows(path):
    with contextlib.closing(sqlite3.connect(path)) as database:
        sql = f"SELECT {COLUMNS} FROM weight JOIN tensor ON tensor = id ORDER BY 1, 2, 3"
        return database.execute(sql).fetchall()


class Recorded:
    """An fsspec store in memory whose ranges are recorded; it can fail at one of them."""

    def __init__(self, monkeypatch):
        self.asked, self.lock, self.fail_at = [], threading.Lock(), None
        original = fsspec_folders._Watched.fetch

        def fetch(watched, start, stop):
            with self.lock:
                self.asked.append((watched._path, start, stop))
            if self.fail_at is not None and len(self.asked) > self.fail_at:
                raise CheckpointError("broken on purpose")
            return original(watched, start, stop)

        monkeypatch.setattr(fsspec_folders._Watched, "fetch", fetch)

    @property
    def twice(self):
        spans = sorted(self.asked)
        return [(a, b) for a, b in itertools.pairwise(spans) if a[0] == b[0] and b[1] < a[2]]


@pytest.fixture
def store(monkeypatch):
    memory = fsspec.filesystem("memory")
    recorded = Recorded(monkeypatch)
    monkeypatch.setattr(range_file, "header_guess", range_file.HeaderGuess())
    yield recorded
    memory.rm("/striped", recursive=True)


def put(folder):
    memory = fsspec.filesystem("memory")
    for path in folder.rglob("*"):
        if path.is_file():
            memory.pipe(f"/striped/{path.relative_to(folder)}", path.read_bytes())


def compare(tmp_path, folder):
    put(folder)
    scan("memory://striped", tmp_path / "remote.db").close()
    scan(folder, tmp_path / "local.db").close()
    found = rows(tmp_path / "remote.db")
    assert found == rows(tmp_path / "local.db")
    return found


@pytest.mark.parametrize("size", [1 << 20, 1 << 23])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_equal_those_of_a_local_scan(tmp_path, store, monkeypatch, size, dtype):
    """Also where a tensor is divided into windows of several stripes."""
    monkeypatch.setattr(stripes.plan_stripes, "__defaults__", (size,))
    folder = tmp_path / "run"
    folder.mkdir()
    for step in range(4):
        save_file(tensors(step, dtype), folder / f"step_{step}.safetensors")
    assert len(compare(tmp_path, folder)) == 4 * len(SHAPES)
    assert store.twice == []


def test_other_layouts_dtypes_and_shards(tmp_path, store):
    """Checkpoints of one series that store their tensors in other orders, files and dtypes."""
    folder = tmp_path / "run"
    for step in range(4):
        (folder / f"step_{step}").mkdir(parents=True)
    save_file(tensors(0), folder / "step_0" / "model.safetensors")
    torch.save(tensors(1), folder / "step_1" / "pytorch_model.bin")
    halves = [dict(list(tensors(2).items())[i::2]) for i in range(2)]
    for i, half in enumerate(halves):
        save_file(half, folder / "step_2" / f"model-0000{i + 1}-of-00002.safetensors")
    save_file(tensors(3, torch.float64, order=-1), folder / "step_3" / "model.safetensors")
    assert len(compare(tmp_path, folder)) == 4 * len(SHAPES)


def test_each_byte_once_and_few_requests_in_a_long_series(tmp_path, store, monkeypatch):
    """More checkpoints than the cache of edges holds: 32 chunks here, 1024 otherwise."""
    monkeypatch.setattr(range_file, "edge_chunks", range_file.ByteCache(32 * range_file.CHUNK))
    monkeypatch.setattr(range_file.RangeFile, "digest", property(lambda file: file.name))  # as an ETag is
    memory = fsspec.filesystem("memory")
    count, total = 60, 0
    for step in range(count):
        data = save({name: values[:200] for name, values in tensors(step).items()})
        memory.pipe(f"/striped/step_{step}.safetensors", data)
        total += len(data)
    scan("memory://striped", tmp_path / "run.db").close()
    assert store.twice == []
    assert sum(stop - start for _, start, stop in store.asked) <= total
    assert len(store.asked) <= 2 * count + 20


def test_a_broken_scan_keeps_whole_tensors_and_continues(tmp_path, store, monkeypatch):
    monkeypatch.setattr(stripes.plan_stripes, "__defaults__", (1 << 20,))
    folder = tmp_path / "run"
    folder.mkdir()
    for step in range(3):
        save_file(tensors(step), folder / f"step_{step}.safetensors")
    put(folder)
    scan(folder, tmp_path / "local.db").close()
    local = rows(tmp_path / "local.db")
    scan("memory://striped", tmp_path / "other.db").close()
    store.fail_at = len(store.asked) - 3
    store.asked.clear()
    with pytest.raises(CheckpointError, match="broken on purpose"):
        scan("memory://striped", tmp_path / "run.db", workers=1)
    kept = rows(tmp_path / "run.db")
    assert set(kept) <= set(local)
    assert len(kept) % 3 == 0
    store.fail_at = None
    scan("memory://striped", tmp_path / "run.db").close()
    assert rows(tmp_path / "run.db") == local


def test_results_come_in_order_and_not_too_many_ahead(monkeypatch):
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", 30)
    under_way, most, lock = 0, 0, threading.Lock()

    def job(i):
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        return i

    found = []
    for i in ReadAhead([(lambda i=i: job(i), 10) for i in range(40)]).results():
        found.append(i)
        with lock:
            under_way -= 1
    assert found == list(range(40))
    assert most <= 3


def test_connections_are_added_only_while_that_helps(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(read_ahead.time, "monotonic", lambda: clock[0])
    far = ConnectionCount(None, 32)
    for _ in range(200):  # each request takes a second, however many there are
        clock[0] += 1 / far.limit
        far.arrived(100)
    near = ConnectionCount(None, 32)
    for _ in range(200):  # a line that is full: more connections are not faster
        clock[0] += 1
        near.arrived(100)
    assert far.limit == 32
    assert near.limit == 8
    assert ConnectionCount(3, 32).limit == 3
