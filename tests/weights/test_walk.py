"""How a tensor is walked through its checkpoints: what is in memory, and when it is released."""

import numpy as np
import pytest

from normscope.checkpoints.base import Checkpoint, Tensor
from normscope.checkpoints.storage import zips
from normscope.weights.reading import walk
from normscope.weights.reading.plan import Chain
from normscope.weights.scan.scan import scan


class Watched(Checkpoint):
    """One float32 tensor; released buffers become NaN, so that a later use would be seen."""

    nbytes, digest = 0, ""

    def __init__(self, values, zero_copy, granularity):
        self.tensors = {"w": Tensor("w", values.shape, "float32", "w")}
        self.values, self._zero_copy, self._granularity = values.copy(), zero_copy, granularity
        self.read_bytes, self.held, self.most = 0, 0, 0

    def zero_copy(self, name):
        return self._zero_copy

    def read_granularity(self, name):
        return self._granularity

    def read(self, name, start, stop):
        self.read_bytes += stop - start
        self.held += stop - start
        self.most = max(self.most, self.held)
        return memoryview(self.values).cast("B")[start:stop]

    def drop(self, name, start, stop):
        self.held = 0
        self.values[start // 4 : stop // 4] = np.nan

    def close(self):
        pass


@pytest.mark.parametrize(
    ("zero_copy", "granularity"), [(True, 1), (False, 1), (False, 3000), (False, 40_000)]
)
@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("segment", [1, 2, 16])
def test_everything_is_read_once_and_released_in_time(monkeypatch, zero_copy, granularity, count, segment):
    monkeypatch.setattr(walk, "BLOCK", 4096)
    monkeypatch.setattr(walk, "WINDOW", 1 << 15)
    monkeypatch.setattr(walk, "SPAN", 1 << 16)
    monkeypatch.setattr(walk, "SEGMENT", segment)
    random = np.random.default_rng(0)
    values = [random.standard_normal(50_000).astype(np.float32) for _ in range(count)]
    checkpoints = [Watched(v, zero_copy, granularity) for v in values]
    chain = Chain(frozenset(range(count)), tuple(range(count)))
    parts = list(walk.parts(checkpoints[0].tensors["w"], chain, checkpoints))
    assert [p.start for p in parts[1:]] == [p.stop for p in parts[:-1]]
    assert all(p.start * 4 % granularity == 0 for p in parts)
    found = [walk.walk(part, checkpoints) for part in parts]
    for k, (checkpoint, theta) in enumerate(zip(checkpoints, map(np.float64, values), strict=True)):
        rows = [part[k] for part in found]
        assert sum(row.nonfinite for row in rows) == 0
        assert sum(row.sumsq for row in rows) == pytest.approx(theta @ theta, rel=1e-7)
        first = values[0].astype(np.float64)
        assert sum(row.dot_init for row in rows) == pytest.approx(first @ theta, abs=1e-7 * (theta @ theta))
        if k:
            delta = theta - values[k - 1]
            assert sum(row.sumsq_delta for row in rows) == pytest.approx(delta @ delta, rel=1e-7)
        assert checkpoint.read_bytes == 200_000
        assert checkpoint.held == 0
        assert np.isnan(checkpoint.values).all()
        assert checkpoint.most <= max(granularity, 4096, (1 << 15) if zero_copy else 0)


def test_a_compressed_array_is_unpacked_once(monkeypatch, tmp_path):
    """It is not cut into parts, because everything before a part would have to be unpacked again."""
    monkeypatch.setattr(walk, "SPAN", 1 << 16)
    unpacked = []
    stream = zips._InflateStream
    pull = stream.pull
    monkeypatch.setattr(stream, "pull", lambda *a: unpacked.append(len(found := pull(*a))) or found)
    random = np.random.default_rng(0)
    values = {step: random.standard_normal(500_000).astype(np.float32) for step in (1, 2, 3)}
    for step, value in values.items():
        np.savez_compressed(tmp_path / f"step_{step}.npz", w=value, small=value[:10])
    with scan(tmp_path, tmp_path / "run.db") as run:
        found = dict(run.query("SELECT step, sumsq FROM weight JOIN tensor ON tensor = id WHERE name = 'w'"))
    assert found == pytest.approx({step: float(v @ v.astype(np.float64)) for step, v in values.items()})
    assert sum(unpacked) < 3 * (500_000 + 1000) * 4
