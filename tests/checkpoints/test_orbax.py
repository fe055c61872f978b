"""Orbax checkpoints against the arrays they were made of."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from normscope.checkpoints import open_series, zarr_arrays
from normscope.checkpoints.zarr_arrays import parse_metadata
from normscope.errors import CheckpointError

tensorstore = pytest.importorskip("tensorstore")
HERE = Path(__file__).parent / "fixtures" / "orbax"


def check(checkpoint, arrays):
    assert checkpoint.tensors.keys() == arrays.keys()
    for name, array in arrays.items():
        whole = array.tobytes()
        assert checkpoint.tensors[name].shape == array.shape
        for start in range(0, len(whole), 13):
            stop = min(start + 31, len(whole))
            assert bytes(checkpoint.read(name, start, stop)) == whole[start:stop]
        checkpoint.drop(name, 0, len(whole))


@pytest.mark.parametrize("kind", ["ocdbt", "zarr", "zarr3"])
def test_what_orbax_saved(kind):
    series = open_series(HERE / kind)
    assert [entry.step for entry in series.entries] == [100, 200]
    for entry in series.entries:
        checkpoint = entry.open()
        check(checkpoint, dict(np.load(HERE / "expected" / f"{entry.step}.npz")))
        assert checkpoint.format == "orbax"
        assert checkpoint.step == entry.step
        assert checkpoint.tensors["block_0.kernel"].dtype == "bfloat16"
        assert "opt_state" in checkpoint.skipped
        assert checkpoint.nbytes > 0
        assert len(checkpoint.digest) == 32


def test_chunks_along_every_axis(tmp_path):
    """As T5X lays them out: target.* beside state.*, several chunks an array."""
    arrays = {"encoder.w": np.arange(70, dtype=np.float32).reshape(10, 7), "decoder.b": np.arange(5.0)}
    for name, array in {**arrays, "x": arrays["decoder.b"]}.items():
        folder = tmp_path / "checkpoint_70" / (f"target.{name}" if name != "x" else "state.param_states.x")
        chunks = [3] * array.ndim
        metadata = {"chunks": chunks, "compressor": {"id": "gzip", "level": 1}}
        spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{folder}/"}, "metadata": metadata}
        store = tensorstore.open(spec, create=True, shape=array.shape, dtype=array.dtype).result()
        store.write(array).result()
    (tmp_path / "checkpoint_70" / "checkpoint").write_bytes(b"\x80")
    (entry,) = open_series(tmp_path).entries
    checkpoint = entry.open()
    assert entry.step == 70
    check(checkpoint, arrays)
    assert set(checkpoint.skipped) == {"state"}


def test_bands_are_let_go(monkeypatch):
    monkeypatch.setattr(zarr_arrays, "BAND_BYTES", 1)
    checkpoint = open_series(HERE / "ocdbt").entries[0].open()
    for name, tensor in checkpoint.tensors.items():
        checkpoint.read(name, 0, tensor.nbytes)
    assert len(zarr_arrays._bands._bands) == 1
    checkpoint.drop(name, 0, tensor.nbytes)
    assert len(zarr_arrays._bands._bands) == 0
    assert zarr_arrays._bands._bytes == 0


@pytest.mark.parametrize("kind", ["ocdbt", "zarr"])
def test_damage(tmp_path, kind):
    source = next((HERE / kind).iterdir())
    shutil.copytree(source, tmp_path / "step_1")
    for path in (tmp_path / "step_1").rglob("*"):
        if path.is_file() and not path.name.startswith("_"):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CheckpointError):
        open_series(tmp_path).entries[0].open()


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [-1, 4]},
        {"shape": [2**63, 4]},
        {"chunks": [0, 4]},
        {"chunks": [4]},
        {"dtype": "|O"},
        {"dtype": 5},
    ],
    ids=str,
)
def test_metadata_that_contradicts_itself(change):
    metadata = {"zarr_format": 2, "shape": [3, 4], "chunks": [3, 4], "dtype": "<f4"}
    assert parse_metadata(json.loads(json.dumps(metadata))) == ((3, 4), (3, 4), "float32")
    with pytest.raises(ValueError, match=r"shape|chunk|dtype"):
        parse_metadata({**metadata, **change})
