"""Zstandard and OCDBT, as far as they are looked into before tensorstore reads them."""

import random

import numpy as np
import pytest

from normscope.checkpoints import open_series
from normscope.checkpoints.formats.orbax import zstandard
from normscope.checkpoints.formats.orbax.ocdbt_tree import check_tree
from normscope.checkpoints.storage.local import LocalFolder
from tests.checkpoints.small_checkpoints import check_arrays
from tests.fuzz.grammars.ocdbt_stores import frame, zeros
from tests.fuzz.mutations import damaged


def samples():
    rng = random.Random(0)
    yield from (b"", b"a", b"abc" * 1000, rng.randbytes(300_000), bytes(1_000_000))
    for size in (10, 100, 1_000, 30_000, 200_000):
        for kinds in (2, 5, 60, 256):
            yield bytes(rng.randrange(kinds) for _ in range(size))
            yield b"".join(
                b"params.layers_%d.kernel/%d.%d" % (rng.randrange(kinds), rng.randrange(9), i)
                for i in range(size // 20)
            )


@pytest.mark.parametrize("level", [-5, 1, 3, 9, 19])
def test_what_the_library_packs(level):
    codec = pytest.importorskip("pyarrow").Codec("zstd", compression_level=level)
    for data in samples():
        packed = codec.compress(data, asbytes=True)
        assert b"".join(zstandard.unpacked(packed)) == data
        assert sum(size for _, _, size in zstandard.blocks(packed)) >= len(data)


def test_stored_and_repeated_blocks():
    data = random.Random(0).randbytes(250_000)
    assert b"".join(zstandard.unpacked(frame(data))) == data
    assert b"".join(zstandard.unpacked(zeros(300_000))) == bytes(300_000)


def test_damaged_frames():
    """Whatever is in a frame, it ends with bytes or a ValueError or IndexError, in blocks of limited size."""
    codec = pytest.importorskip("pyarrow").Codec("zstd", compression_level=9)
    rng, ended = random.Random(0), 0
    packed = codec.compress(b"".join(b"layers_%d.kernel/%d" % (i % 7, i) for i in range(500)), asbytes=True)
    for _ in range(2000):
        try:
            for block in zstandard.unpacked(damaged(rng, packed)):
                assert len(block) <= zstandard.BLOCK
        except (ValueError, IndexError):
            ended += 1
    assert ended > 1000


@pytest.mark.parametrize("kind", ["single", "numbered"])
@pytest.mark.parametrize("compression", [None, {"id": "zstd", "level": 3}])
def test_trees_that_tensorstore_writes(tmp_path, kind, compression):
    """Stores of several versions and levels are counted, and read."""
    tensorstore = pytest.importorskip("tensorstore")
    config = {"max_inline_value_bytes": 20, "max_decoded_node_bytes": 300, "manifest_kind": kind}
    base = {"driver": "file", "path": f"{tmp_path}/checkpoint_1/"}
    store = {"driver": "ocdbt", "base": base, "config": {**config, "compression": compression}}
    rng = np.random.default_rng(0)
    arrays = {f"layers_{i}.kernel": rng.standard_normal((7, 5)).astype("f4") for i in range(12)}
    for name, array in arrays.items():
        spec = {
            "driver": "zarr",
            "kvstore": {**store, "path": f"params.{name}/"},
            "metadata": {"chunks": [2, 3]},
        }
        tensorstore.open(spec, create=True, shape=array.shape, dtype=array.dtype).result().write(
            array
        ).result()
    folder = LocalFolder(tmp_path / "checkpoint_1")
    check_tree(folder, sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()))
    check_arrays(open_series(tmp_path).entries[0].open(), arrays)
