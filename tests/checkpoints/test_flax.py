"""What Flax, Orbax NNX, T5X, Haiku and pickle wrote, against the same models saved whole as safetensors."""

import functools
import pickle
import shutil
import tempfile
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from normscope.checkpoints import open_file, open_series
from normscope.checkpoints.formats.flax import msgpack_reader, nnx_states
from normscope.checkpoints.formats.torch import windowed_bytes
from normscope.checkpoints.storage.local import LocalFile
from normscope.errors import CheckpointError, CorruptCheckpoint, UnsafeCheckpoint
from normscope.weights.scan.scan import scan
from tests.checkpoints.test_rank_layouts import check_rows, rows

from .hostile.msgpack_files import array, packed

ml_dtypes = pytest.importorskip("ml_dtypes")
HERE = Path(__file__).parent / "fixtures" / "flax"
MSGPACK = ("save_checkpoint", "to_bytes", "hugging_face", "shards", "chunked")
PICKLED = (
    *(f"{order}_{p}" for order in ("numpy", "fortran") for p in (2, 3, 4, 5)),
    "jax_state",
    "jax_tuple",
)
ZARR = ("t5x", "early_orbax", "nnx_ocdbt", "nnx_zarr", "nnx_pure", "nnx_manager")
LAYOUTS = (*MSGPACK, *PICKLED, "haiku", *ZARR)
STEPS = (100, 200)


def whole(layout):
    model = "nnx" if layout.startswith("nnx") else "haiku" if layout == "haiku" else "linen"
    return HERE / "whole" / model


def steps(layout):
    return STEPS if layout not in ("t5x", "early_orbax", "nnx_zarr", "nnx_pure", "nnx_manager") else STEPS[:1]


@pytest.fixture(params=LAYOUTS)
def layout(request):
    if request.param in ZARR:
        pytest.importorskip("tensorstore")
    return request.param


@functools.cache
def _expected(model, listed):
    with tempfile.TemporaryDirectory() as place:
        return rows([model / f"step_{step}.safetensors" for step in listed], Path(place) / "whole.db")


def expected_rows(layout):
    return _expected(whole(layout), steps(layout))


def test_every_row_is_that_of_the_model_saved_whole(layout, tmp_path):
    """Norms, differences, layers and roles; the series has its steps, whoever says them."""
    found = rows(HERE / layout, tmp_path / "run.db")
    check_rows(found, expected_rows(layout))
    assert {row[0] for row in found} == set(steps(layout))


@pytest.mark.parametrize("layout", ["save_checkpoint", "numpy_2", "jax_state", "shards"])
def test_in_parallel_and_resumed(layout, tmp_path):
    shutil.copytree(HERE / layout, tmp_path / "part")
    later = sorted((tmp_path / "part").iterdir())[1]
    later.rename(tmp_path / later.name)
    scan(tmp_path / "part", tmp_path / "run.db", workers=2).close()
    (tmp_path / later.name).rename(later)
    found = rows(tmp_path / "part", tmp_path / "run.db", workers=2)
    check_rows(found, expected_rows(layout))


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout", [pytest.param(each, marks=[pytest.mark.slow] * each.startswith("nnx")) for each in LAYOUTS]
)
def test_from_fsspec(layout, tmp_path):
    if layout in ZARR:
        pytest.importorskip("tensorstore")
    fsspec = pytest.importorskip("fsspec")
    filesystem = fsspec.filesystem("memory")
    for path in (HERE / layout).rglob("*"):
        if path.is_file():
            filesystem.pipe(f"/flax/{path.relative_to(HERE / layout)}", path.read_bytes())
    try:
        check_rows(rows("memory://flax", tmp_path / "run.db"), expected_rows(layout))
    finally:
        filesystem.rm("/flax", recursive=True)


SKIPPED = {
    "save_checkpoint": {
        "batch_stats": "batch statistics", "opt_state": "optimizer state",
        "step": "optimizer, scheduler or random state",
    },
    "nnx_zarr": {
        "norm.mean": "batch statistics", "norm.var": "batch statistics",
        **{f"layers.{i}.dropout.rngs.{last}": "random state" for i in (0, 1) for last in ("key", "count")},
    },
    "jax_tuple": {"1": "optimizer state"},
    "haiku": {
        "opt_state.0": "optimizer state", "opt_state.1": "optimizer state",
        "state": "beside the model, which is 'params'",
    },
    "chunked": {},
}  # fmt: skip


@pytest.mark.parametrize("layout", SKIPPED)
def test_what_is_no_parameter_is_listed(layout):
    if layout in ZARR:
        pytest.importorskip("tensorstore")
    checkpoint = open_series(HERE / layout).entries[0].open()
    assert checkpoint.skipped == SKIPPED[layout]
    assert checkpoint.notes == ((nnx_states.NOTE,) if layout == "nnx_zarr" else ())


def test_the_step_inside_counts_where_the_name_has_none():
    assert [entry.step for entry in open_series(HERE / "to_bytes").entries] == [100, 200]
    assert [entry.step for entry in open_series(HERE / "jax_state").entries] == [100, 200]


def test_flax_is_left_out_where_the_same_model_has_a_better_known_format(tmp_path):
    for step in STEPS:
        shutil.copytree(HERE / "hugging_face" / f"step_{step}", tmp_path / "run" / f"step_{step}")
        source = whole("hugging_face") / f"step_{step}.safetensors"
        shutil.copy(source, tmp_path / "run" / f"step_{step}" / "model.safetensors")
        (tmp_path / "run" / f"step_{step}" / "opt_state.msgpack").write_bytes(b"\x80")
    series = open_series(tmp_path / "run")
    assert [entry.open().format for entry in series.entries] == ["safetensors", "safetensors"]
    assert {each.label for each in series.left_out} == {f"step_{step}/flax_model" for step in STEPS}


# -- msgpack ---------------------------------------------------------------------------------------


def opened(tmp_path, content, name="step_1.msgpack"):
    path = tmp_path / name
    path.write_bytes(content)
    return open_file(LocalFile(path))


def test_arrays_stay_where_they_are(tmp_path, monkeypatch):
    """Opening reads windows around the headers, and the kernel maps the arrays themselves."""
    read = []
    plain = LocalFile.peek
    monkeypatch.setattr(LocalFile, "peek", lambda self, a, b: (read.append(b - a), plain(self, a, b))[1])
    values = np.arange(3_000_000, dtype=np.float32)
    checkpoint = opened(tmp_path, packed({"params": {"a": array(values), "b": array(values[:5])}}))
    assert sum(read) < 100_000
    assert checkpoint.zero_copy("a")
    assert bytes(checkpoint.read("b", 0, 20)) == values[:5].tobytes()
    assert bytes(checkpoint.borrow("a", 8_000_000, 8_000_400)) == values[2_000_000:2_000_100].tobytes()


def test_chunks_are_joined(tmp_path):
    values = np.arange(12, dtype=np.float64).reshape(3, 4)
    parts = np.split(values.reshape(-1), [5, 5, 9])
    tree = {
        "__msgpack_chunked_array__": True,
        "shape": {"0": 3, "1": 4},
        "chunks": {str(i): array(part) for i, part in enumerate(parts)},
    }
    checkpoint = opened(tmp_path, packed({"w": tree}))
    data = values.tobytes()
    assert all(
        bytes(checkpoint.read("w", a, b)) == data[a:b] for a in range(0, 97, 8) for b in range(a, 97, 8)
    )


def test_dtypes(tmp_path):
    arrays = {
        "bf": np.ones((2, 3), ml_dtypes.bfloat16), "f8": np.ones(3, ml_dtypes.float8_e4m3fn),
        "f2": np.ones(2, "f2"), "scalar": np.float32(2.5), "empty": np.ones((0, 4), "f4"), "i": np.arange(3),
    }  # fmt: skip
    odd = {"int4": np.ones(3, ml_dtypes.int4), "text": "abc", "number": 2.0}
    tree = {name: value if isinstance(value, str | float) else array(value) for name, value in odd.items()}
    checkpoint = opened(tmp_path, packed({**{name: array(value) for name, value in arrays.items()}, **tree}))
    assert checkpoint.tensors.keys() == arrays.keys()
    for name, value in arrays.items():
        assert checkpoint.tensors[name].dtype == value.dtype.name
        assert bytes(checkpoint.read(name, 0, value.nbytes)) == value.tobytes()
    assert checkpoint.skipped == {
        "int4": "the dtype int4",
        "text": "not an array, but a value of the type str",
        "number": "not an array, but a value of the type float",
    }


def test_arrays_elsewhere_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="only refers to its arrays"):
        opened(tmp_path, packed({"params": {"w": "//GDAPlaceholder:w"}}))
    with pytest.raises(CheckpointError, match="only refers to its arrays"):
        open_file(LocalFile(HERE / "t5x" / "checkpoint_100" / "checkpoint"))


@pytest.mark.parametrize("layout", ["t5x", "early_orbax"])
def test_a_missing_array_is_an_error(layout, tmp_path):
    pytest.importorskip("tensorstore")
    (source,) = (HERE / layout).iterdir()
    shutil.copytree(source, tmp_path / "step_100")
    name = "target" if layout == "t5x" else "params"
    shutil.rmtree(tmp_path / "step_100" / f"{name}.lm_head.kernel")
    with pytest.raises(CorruptCheckpoint, match="lacks 1 arrays"):
        open_series(tmp_path).entries[0].open()


def test_missing_and_foreign_shards(tmp_path):
    shutil.copytree(HERE / "shards" / "step_100", tmp_path / "step_100")
    second = tmp_path / "step_100" / "flax_model-00002-of-00002.msgpack"
    shutil.copy(HERE / "shards" / "step_200" / "flax_model-00001-of-00002.msgpack", second)
    with pytest.raises(CorruptCheckpoint, match="no shard contains"):
        open_series(tmp_path).entries[0].open()
    (tmp_path / "step_100" / "flax_model.msgpack.index.json").unlink()
    with pytest.raises(CorruptCheckpoint, match="so does another shard"):
        open_series(tmp_path).entries[0].open()
    second.unlink()
    with pytest.raises(CorruptCheckpoint, match="one of 2 shards"):
        open_series(tmp_path).entries[0].open()


@pytest.mark.parametrize("cut", [1, 100, 3000])
def test_a_truncated_file_is_an_error(cut, tmp_path):
    data = (HERE / "save_checkpoint" / "checkpoint_100").read_bytes()
    with pytest.raises(CorruptCheckpoint, match="damaged"):
        opened(tmp_path, data[:-cut])


def test_only_trees_are_recognised(tmp_path):
    for data in (
        b"\x80",
        b"\x81\xa1w",
        b"\x80\x02}.",
        b"\x81\x01\x01",
        b"\x81\xa1\x1b\x01",
        b"\xde\xff\xff\xa1w",
    ):
        (tmp_path / "x").write_bytes(data)
        assert not msgpack_reader.begins_as_tree(LocalFile(tmp_path / "x")), data


# -- names -----------------------------------------------------------------------------------------


def test_values_of_nnx_are_told_from_a_projection():
    paths = [("a", "kernel", "value"), ("attn", "value"), ("attn", "query"), ("b", "raw_value"), ("value",)]
    short = nnx_states.without_value_leaves(paths)
    assert list(short.values()) == [("a", "kernel"), ("attn", "value"), ("attn", "query"), ("b",), ("value",)]
    # Not where two would have one name.
    assert list(nnx_states.without_value_leaves([("a",), ("a", "value")])) == [("a",), ("a", "value")]


def test_a_mean_alone_is_a_parameter(tmp_path):
    tree = {"vae": {"mean": np.ones(3, "f4"), "var": np.ones(4, "f4")}, "bn": {"mean": np.ones(3, "f4")}}
    path = tmp_path / "step_1.pkl"
    path.write_bytes(pickle.dumps(tree))
    assert not open_file(LocalFile(path)).skipped


# -- pickles ---------------------------------------------------------------------------------------

Params = namedtuple("Params", "w b")
TREE = {"layer": {"w": np.ones((2, 3), "f4"), "b": np.ones(3, "f4")}}


def unpickled(tmp_path, value, protocol=4):
    path = tmp_path / "step_1.pkl"
    path.write_bytes(pickle.dumps(value, protocol))
    return open_file(LocalFile(path))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("order", ["C", "F", "K", "sliced"])
def test_every_order_of_axes(tmp_path, protocol, order):
    random = np.random.default_rng(0)
    base = random.standard_normal((40, 30, 20)).astype("f4" if order != "K" else ml_dtypes.bfloat16)
    value = {"C": base, "F": np.asfortranarray(base), "K": base.transpose(1, 0, 2), "sliced": base[::2]}[
        order
    ]
    checkpoint = unpickled(
        tmp_path, {"w": value, "n": np.int64(3), "deep": [(np.float64(1.5), value[0])]}, protocol
    )
    assert checkpoint.tensors["w"].shape == value.shape
    assert bytes(checkpoint.read("w", 0, value.nbytes)) == value.tobytes()
    assert bytes(checkpoint.read("w", 2222, 3334)) == value.tobytes()[2222:3334]
    assert bytes(checkpoint.read("deep.0.0", 0, 8)) == np.float64(1.5).tobytes()


def test_text_of_several_pieces(tmp_path, monkeypatch):
    """Protocol 2 of Python 3: the pieces end inside of characters, too."""
    monkeypatch.setattr(windowed_bytes, "_PIECE", 101)
    value = np.random.default_rng(0).integers(0, 256, 9000, np.uint8).view("f4")
    checkpoint = unpickled(tmp_path, {"w": value}, 2)
    data = value.tobytes()
    assert all(
        bytes(checkpoint.read("w", a, a + n)) == data[a : a + n] for a in range(0, 8000, 97) for n in (1, 500)
    )


def test_one_array_twice_is_tied(tmp_path):
    checkpoint = unpickled(tmp_path, {"a": TREE["layer"]["w"], "b": TREE["layer"]["w"]})
    assert checkpoint.tensors["a"].storage == checkpoint.tensors["b"].storage


def test_trees_of_tuples(tmp_path):
    copy = {"layer": {name: value + 1 for name, value in TREE["layer"].items()}}
    with pytest.raises(CheckpointError, match="parts 0, 1 have the same names and shapes"):
        unpickled(tmp_path, (TREE, copy))
    assert set(unpickled(tmp_path, [TREE, copy]).tensors) == {
        f"{i}.layer.{last}" for i in (0, 1) for last in "wb"
    }
    assert set(unpickled(tmp_path, (TREE, 7)).tensors) == {"layer.w", "layer.b"}
    assert set(unpickled(tmp_path, {"x": Params(*TREE["layer"].values())}).tensors) == {"x.0", "x.1"}
    layers = [(np.ones((2, 2)), np.ones(2)), (np.ones((2, 2)), np.ones(2))]
    assert set(unpickled(tmp_path, layers).tensors) == {"0.0", "0.1", "1.0", "1.1"}


def test_arrays_that_are_not_read_are_named(tmp_path):
    objects = np.array([{}, None], dtype=object)
    odd = {"big": np.ones(3, ">f4"), "text": np.array(["ab"]), "objects": objects}
    assert unpickled(tmp_path, {**TREE, **odd}).skipped == {
        "big": "NumPy's dtype f4, big-endian", "text": "NumPy's dtype U2", "objects": "NumPy's dtype O8",
    }  # fmt: skip


def test_buffers_outside_the_pickle_are_refused(tmp_path):
    path = tmp_path / "step_1.pkl"
    path.write_bytes(pickle.dumps(TREE, 5, buffer_callback=lambda buffer: False))
    with pytest.raises(CorruptCheckpoint, match="buffers outside of it"):
        open_file(LocalFile(path))


class Evil:
    def __reduce__(self):
        return exec, ("raise SystemExit",)


def test_nothing_in_a_tree_is_run(tmp_path):
    with pytest.raises(UnsafeCheckpoint, match=r"would call builtins.exec"):
        unpickled(tmp_path, {**TREE, "x": Evil()})
