"""TensorFlow's checkpoints against what TensorFlow itself read from them."""

import contextlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from normscope.checkpoints import open_series
from normscope.checkpoints.formats.tensorflow.leveldb import decompress, read_sorted_table
from normscope.checkpoints.formats.tensorflow.object_graph import copies, meaningful_names
from normscope.checkpoints.formats.tensorflow.tensor_bundle import open_bundle
from normscope.checkpoints.storage.local import LocalFile, LocalFolder
from normscope.errors import CheckpointError, CorruptCheckpoint
from tests.checkpoints.bundle_writer import write_bundle, write_table

HERE = Path(__file__).parent / "fixtures" / "tensorflow"
NAMES = sorted(path.stem for path in HERE.glob("*.index"))


def test_the_fixtures_are_there():
    assert len(NAMES) == 5


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_is_what_tensorflow_reads(name):
    expected = dict(np.load(HERE / "expected" / f"{name}.npz"))
    checkpoint = open_bundle(LocalFolder(HERE), f"{name}.index")
    suffix = "/.ATTRIBUTES/VARIABLE_VALUE"
    known = {key.removesuffix(suffix): value for key, value in expected.items()}
    assert checkpoint.format == "tensorflow"
    assert known.keys() <= checkpoint.tensors.keys() | checkpoint.skipped.keys()
    for key, tensor in checkpoint.tensors.items():
        assert tensor.shape == known[key].shape
        whole = known[key].tobytes()
        assert bytes(checkpoint.read(key, 0, len(whole))) == whole
        for start in range(0, len(whole), 11):
            stop = min(len(whole), start + 29)
            assert bytes(checkpoint.read(key, start, stop)) == whole[start:stop]


def test_slots_and_bookkeeping_are_skipped_by_name():
    t5 = open_bundle(LocalFolder(HERE), "model.ckpt-1000.index")
    assert set(t5.tensors) == {
        "shared/embedding",
        "encoder/block_000/layer_000/SelfAttention/q",
        "encoder/final_layer_norm/scale",
        "decoder/logits/kernel",
    }
    assert t5.skipped["encoder/final_layer_norm/scale_slot_v"] == "optimizer slot variable"
    assert t5.step == 1000
    objects = open_bundle(LocalFolder(HERE), "objects.ckpt-2.index")
    assert set(objects.tensors) == {"model/_kernel", "model/bias"}


def test_a_series_of_bundles(tmp_path):
    for path in HERE.glob("model.ckpt-*"):
        shutil.copy(path, tmp_path)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-2000"\n')
    (tmp_path / "model.ckpt-1000.meta").write_bytes(b"graph")
    assert [entry.step for entry in open_series(tmp_path).entries] == [1000, 2000]
    for name in ("model.ckpt-1000", "model.ckpt-1000.index", "model.ckpt-1000.data-00001-of-00002"):
        assert [entry.step for entry in open_series(tmp_path / name).entries] == [1000]
    series = open_series([tmp_path, HERE / "model.ckpt-1000"])
    assert [entry.step for entry in series.entries] == [1000, 2000]
    assert [each.reason for each in series.left_out] == ["the same weights as model.ckpt-1000"]
    (tmp_path / "model.ckpt-1000.data-00001-of-00002").unlink()
    with pytest.raises(CorruptCheckpoint, match="data file .* is missing"):
        open_series(tmp_path).entries[0].open()


@pytest.mark.parametrize("position", range(0, 409, 7))
def test_a_flipped_bit_in_the_index_is_noticed(tmp_path, position):
    for path in HERE.glob("model.ckpt-1000*"):
        shutil.copy(path, tmp_path)
    index = tmp_path / "model.ckpt-1000.index"
    data = bytearray(index.read_bytes())
    data[position] ^= 4
    index.write_bytes(data)
    try:
        checkpoint = open_bundle(LocalFolder(tmp_path), index.name)
    except CheckpointError:
        return
    assert len(checkpoint.tensors) == 4  # the padding of the footer is covered by nothing


def test_truncated_data(tmp_path):
    for path in HERE.glob("model.ckpt-1000*"):
        shutil.copy(path, tmp_path)
    data = tmp_path / "model.ckpt-1000.data-00000-of-00002"
    data.write_bytes(data.read_bytes()[:-300])
    with pytest.raises(CorruptCheckpoint, match="truncated"):
        open_bundle(LocalFolder(tmp_path), "model.ckpt-1000.index")


@pytest.mark.parametrize("per_block", [1, 7, 1000])
@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_tables_of_many_blocks(tmp_path, per_block, codec):
    compress = bytes
    if codec == "snappy":
        pyarrow = pytest.importorskip("pyarrow")
        compress = lambda data: pyarrow.compress(data, codec="snappy", asbytes=True)  # noqa: E731
    pairs = [(f"layer/{i:04d}/kernel".encode(), bytes([i % 251]) * (i % 90)) for i in range(300)]
    write_table(tmp_path / "t.index", pairs, per_block, compress)
    assert list(read_sorted_table(LocalFile(tmp_path / "t.index")).items()) == pairs


def test_bundles_of_our_own_writer(tmp_path):
    arrays = {f"layer/{i}": np.random.default_rng(i).random((3, i + 1), np.float32) for i in range(4)}
    write_bundle(tmp_path / "model.ckpt-7", arrays)
    checkpoint = open_series(tmp_path).entries[0].open()
    assert {name: t.shape for name, t in checkpoint.tensors.items()} == {
        n: a.shape for n, a in arrays.items()
    }
    for name, array in arrays.items():
        assert bytes(checkpoint.read(name, 0, array.nbytes)) == array.tobytes()


@given(st.binary(max_size=3000) | st.lists(st.sampled_from([b"abcd" * 5, b"x" * 70, b"yz"])).map(b"".join))
def test_snappy_undoes_what_the_reference_does(data):
    pyarrow = pytest.importorskip("pyarrow")
    assert decompress(pyarrow.compress(data, codec="snappy", asbytes=True), len(data)) == data


@given(st.binary(max_size=200))
def test_snappy_survives_anything(data):
    with contextlib.suppress(ValueError, IndexError):
        decompress(data, 100_000)


def test_names_of_the_graph_that_become_one():
    """A graph may call a variable what another is called; then each keeps its path."""
    known = {"m/variables/0": "p/w", "m/variables/1": "p/w", "m/variables/2": "p/variables/3"}
    assert meaningful_names(known, known)["m/variables/0"] == "p/variables_0/w"
    known |= {"m/variables/3": "q/variables/3", "q/variables/variables_3/3": "x", "r/variables/0": "x"}
    known["q/variables/variables_3/3"] = known["r/variables/0"] = "a/x"
    found = meaningful_names(known, known)
    assert len(set(found.values())) == len(known)


def test_as_many_of_equal_variables_are_copies_as_are_stored_elsewhere():
    """Biases that are all zero are equal: each has its copy in the list that only Keras uses."""
    zeros, kernel = ((8,), "float32", 1), ((8, 8), "float32", 2)
    lists = {"model/_all_variables": [zeros, zeros, kernel, zeros], "model/variables": [zeros, kernel, zeros]}
    marks = {f"{name}/{i}": mark for name, every in lists.items() for i, mark in enumerate(every)}
    assert copies(marks) == {f"model/_all_variables/{i}" for i in range(3)}
