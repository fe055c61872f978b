"""Orbax checkpoints against the arrays they were made of."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from normscope.checkpoints import open_series
from normscope.checkpoints.formats.orbax import zarr_arrays
from normscope.checkpoints.formats.orbax.zarr_arrays import parse_metadata
from normscope.errors import CheckpointError
from tests.checkpoints.small_checkpoints import check_arrays

tensorstore = pytest.importorskip("tensorstore")
HERE = Path(__file__).parent / "fixtures" / "orbax"


@pytest.mark.parametrize("kind", ["ocdbt", "zarr", "zarr3"])
def test_what_orbax_saved(kind):
    series = open_series(HERE / kind)
    assert [entry.step for entry in series.entries] == [100, 200]
    for entry in series.entries:
        checkpoint = entry.open()
        check_arrays(checkpoint, dict(np.load(HERE / "expected" / f"{entry.step}.npz")))
        assert checkpoint.format == "orbax"
        assert checkpoint.step == entry.step
        assert checkpoint.tensors["block_0.kernel"].dtype == "bfloat16"
        assert "opt_state" in checkpoint.skipped
        assert checkpoint.nbytes > 0
        assert len(checkpoint.digest) == 32


def test_chunks_along_every_axis(tmp_path):
    """As T5X lays them out: target.* beside state.*, several chunks per array."""
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
    check_arrays(checkpoint, arrays)
    assert set(checkpoint.skipped) == {"state"}


def test_bands_are_discarded(monkeypatch):
    monkeypatch.setattr(zarr_arrays.bands, "limit", 1)
    checkpoint = open_series(HERE / "ocdbt").entries[0].open()
    for name, tensor in checkpoint.tensors.items():
        checkpoint.read(name, 0, tensor.nbytes)
    assert len(zarr_arrays.bands) == 1
    checkpoint.drop(name, 0, tensor.nbytes)
    assert len(zarr_arrays.bands) == 0
    assert zarr_arrays.bands.nbytes == 0


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
        {"shape": [2**62, 4]},
        {"shape": [3.0, 4]},
        {"shape": [1] * 65, "chunks": [1] * 65},
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


@pytest.mark.parametrize("shape", [[], [0], [0, 4], [2**62 - 1, 1]], ids=str)
def test_shapes_without_axes_or_elements_are_shapes(shape):
    chunks = [1] * len(shape)
    second = {"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": "<f4"}
    grid = {"name": "regular", "configuration": {"chunk_shape": chunks}}
    third = {"zarr_format": 3, "shape": shape, "chunk_grid": grid, "data_type": "float32"}
    for metadata in (second, third):
        assert parse_metadata(metadata) == (tuple(shape), tuple(chunks), "float32")


@pytest.fixture
def in_memory():
    """The fixtures in fsspec's memory."""
    fsspec = pytest.importorskip("fsspec")
    filesystem = fsspec.filesystem("memory")
    for path in HERE.rglob("*"):
        if path.is_file():
            filesystem.pipe(f"/orbax/{path.relative_to(HERE)}", path.read_bytes())
    yield filesystem
    filesystem.rm("/orbax", recursive=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ocdbt", "zarr", "zarr3"])
def test_from_remote_storage(in_memory, kind):
    here = {entry.step: entry.open().nbytes for entry in open_series(HERE / kind).entries}
    series = open_series(f"memory://orbax/{kind}")
    assert [entry.step for entry in series.entries] == [100, 200]
    digests = set()
    for entry in series.entries:
        checkpoint = entry.open()
        check_arrays(checkpoint, dict(np.load(HERE / "expected" / f"{entry.step}.npz")))
        assert checkpoint.nbytes == here[entry.step]
        digests.add(checkpoint.digest)
        checkpoint.close()
    assert len(digests) == 2


def test_a_damaged_remote_store(in_memory):
    in_memory.pipe("/orbax/ocdbt/100/manifest.ocdbt", b"nonsense")
    with pytest.raises(CheckpointError, match="not a readable OCDBT store"):
        open_series("memory://orbax/ocdbt/100", steps=[0]).entries[0].open()


def test_the_server_knows_nothing_else(in_memory):
    """It serves only what is below the folder, and only under its random path."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    from normscope.checkpoints.formats.orbax.served import ServedFolder
    from normscope.checkpoints.storage.fsspec import open_url

    served = ServedFolder(open_url("memory://orbax/ocdbt/100"))
    whole = (HERE / "ocdbt" / "100" / "manifest.ocdbt").read_bytes()
    address = served.address + served.path + "manifest.ocdbt"
    for asked, part in (("", whole), ("bytes=3-9", whole[3:10]), ("bytes=5-", whole[5:])):
        with urlopen(Request(address, headers={"Range": asked} if asked else {})) as answer:
            assert answer.read() == part
    with urlopen(Request(address, method="HEAD")) as head:
        assert int(head.headers["Content-Length"]) == len(whole)
        assert head.read() == b""
    for path in (
        "/manifest.ocdbt",
        "/wrong/manifest.ocdbt",
        *(served.path + p for p in ("", "x", "../200/x")),
    ):
        with pytest.raises(HTTPError) as caught:
            urlopen(served.address + path)
        with caught.value as error:
            assert error.code == 404
    served.close()
    with pytest.raises(OSError, match="refused"):
        urlopen(address)


@pytest.mark.parametrize("rows", [3, 64, 200])
def test_a_scan_unpacks_each_band_once(tmp_path, monkeypatch, rows):
    """However many checkpoints there are, and however small the cache."""
    from normscope.weights.reading import walk
    from normscope.weights.scan.scan import scan

    random = np.random.default_rng(0)
    arrays = [random.standard_normal((300, 128), np.float32) for _ in range(6)]
    for step, array in enumerate(arrays):
        path = f"{tmp_path}/series/step_{step}/params.layers.0.w/"
        spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": path}}
        spec["metadata"] = {"chunks": [rows, 50], "compressor": {"id": "zstd", "level": 1}}
        tensorstore.open(spec, create=True, shape=array.shape, dtype=array.dtype).result().write(
            array
        ).result()
    unpacked = []
    plain = zarr_arrays.ZarrArray._read_band
    monkeypatch.setattr(
        zarr_arrays.ZarrArray,
        "_read_band",
        lambda self, index: (unpacked.append((self._folder.name, index)), plain(self, index))[1],
    )
    monkeypatch.setattr(zarr_arrays, "SMALLEST_BAND", 1)
    monkeypatch.setattr(zarr_arrays.bands, "limit", 3 * 128 * 4)
    monkeypatch.setattr(walk, "BLOCK", 1 << 14)
    monkeypatch.setattr(walk, "SPAN", 1 << 15)
    monkeypatch.setattr(walk, "SEGMENT", 1 if rows == 3 else 16)
    with scan(tmp_path / "series", tmp_path / "run.db") as run:
        found = run.query("SELECT step, sumsq, sumsq_delta, dot_init FROM weight ORDER BY step")
        for step, sumsq, delta, init in found:
            now, before = arrays[step].astype(float), arrays[max(step - 1, 0)].astype(float)
            assert sumsq == pytest.approx((now**2).sum(), rel=1e-7)
            assert init == pytest.approx((arrays[0].astype(float) * now).sum(), rel=1e-6, abs=1e-6 * sumsq)
            assert delta is None or delta == pytest.approx(((now - before) ** 2).sum(), rel=1e-7)
    # Is `w` a constant? One look at the first checkpoint, and one at the last.
    looked_at = [(f"{tmp_path}/series/step_{step}", 0) for step in (0, 5)]
    assert len(set(unpacked)) == 6 * -(-300 // rows)
    assert sorted(unpacked) == sorted([*set(unpacked), *looked_at])
