"""Keras's files, written by Keras itself, against the same models saved whole."""

import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

import normscope as ns
from normscope.checkpoints import open_series
from normscope.checkpoints.formats.hdf5 import hdf5_bytes
from normscope.checkpoints.formats.registry import open_file
from normscope.checkpoints.formats.tensorflow.object_graph import COPY
from normscope.checkpoints.storage.local import LocalFile
from normscope.errors import CheckpointError, CorruptCheckpoint
from tests.checkpoints.memory_files import MemoryFolder
from tests.checkpoints.test_rank_layouts import check_rows, rows

FIXTURES = Path(__file__).parent / "fixtures" / "keras"
SUBCLASSED = ("subclassed.weights.h5", "subclassed.keras", "shards")


def series(tmp_path, name, label="layout"):
    """A folder with the checkpoint of a fixture at step 5."""
    folder = tmp_path / label
    folder.mkdir(exist_ok=True)
    if (FIXTURES / name).is_dir():
        shutil.copytree(FIXTURES / name, folder / "step_5")
    else:
        shutil.copy(FIXTURES / name, folder / f"step_5{name[name.index('.') :]}")
    return folder


def opened(folder):
    (entry,) = open_series(folder).entries
    return entry.open()


def squares(folder, run):
    with ns.scan(folder, run) as found:
        return sorted(found.query("SELECT numel, sumsq FROM weight JOIN tensor ON id = tensor"))


def layers(source, run):
    with ns.scan(source, run) as found:
        return dict(
            found.query("SELECT layer, SUM(sumsq) FROM weight JOIN tensor ON id = tensor GROUP BY layer")
        )


@pytest.mark.parametrize("name", [*SUBCLASSED, "functional.h5"])
def test_the_rows_are_those_of_the_model_saved_whole(tmp_path, name):
    """Every tensor's name, component, layer, role and sums; the head is bfloat16 in one of them."""
    whole = dict(np.load(FIXTURES / f"{'functional' if 'functional' in name else 'subclassed'}.npz"))
    folder = series(tmp_path, name)
    checkpoint = opened(folder)
    assert checkpoint.format == "hdf5"
    measured = {n: t for n, t in checkpoint.tensors.items() if "moving" not in n}
    assert measured.keys() == whole.keys()
    assert {n: t.shape for n, t in measured.items()} == {n: v.shape for n, v in whole.items()}
    (tmp_path / "whole").mkdir()
    np.savez(tmp_path / "whole" / "step_5.npz", **whole)
    for by in ("component", "layer", "role"):
        assert sums(folder, tmp_path / "layout.db", by) == pytest.approx(
            sums(tmp_path / "whole", tmp_path / "whole.db", by), rel=1e-7
        )


def sums(source, run, by):
    with ns.scan(source, run) as found:
        text = f"SELECT {by}, SUM(sumsq) FROM weight JOIN tensor ON id = tensor GROUP BY {by}"
        return dict(found.query(text))


@pytest.mark.parametrize("name", SUBCLASSED)
def test_what_is_beside_the_model_is_skipped_and_named(tmp_path, name):
    checkpoint = opened(series(tmp_path, name))
    assert checkpoint.skipped["optimizer"] == "optimizer state"
    assert checkpoint.step == 7
    with ns.scan(series(tmp_path, name, "again"), tmp_path / "run.db") as run:
        assert "batch_norm.moving_variance" not in [row[0] for row in run.query("SELECT name FROM tensor")]


def test_all_files_of_a_model_are_the_same_series(tmp_path):
    for step, name in enumerate(SUBCLASSED):
        source = FIXTURES / name
        ending = name[name.index(".") :] if "." in name else ""
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / f"step_{step}{ending}")
    with ns.scan(tmp_path, tmp_path / "run.db") as run:
        assert run.query("SELECT COUNT(DISTINCT step), SUM(sumsq_delta) FROM weight") == [(3, 0.0)]


def test_chosen_names_and_places_name_layers(tmp_path):
    """The user's names stay; those that Keras makes up (dense_17) are replaced by attributes and places."""
    found = opened(series(tmp_path, "functional.weights.h5")).tensors
    assert {"transformer_layer_1.attention.query_dense.kernel", "lm_head.bias"} <= found.keys()
    assert opened(series(tmp_path, "functional.h5", "old")).step is not None


def test_weights_alone_give_the_rows_of_the_whole_model(tmp_path):
    old, new = (series(tmp_path, n, n) for n in ("functional.h5", "functional.weights.h5"))
    assert squares(old, tmp_path / "old.db") == squares(new, tmp_path / "new.db")
    assert layers(old, tmp_path / "old2.db") == pytest.approx(layers(new, tmp_path / "new2.db"), rel=1e-12)


@pytest.mark.parametrize(("name", "copied"), [("exported", True), ("objects", False)])
def test_tensorflow_variables_count_once(tmp_path, name, copied):
    """An export holds each variable twice; in a checkpoint, some of the model's are below the optimizer."""
    folder = series(tmp_path, name)
    if name == "objects":
        for path in (folder / "step_5").iterdir():
            path.rename(folder / path.name.replace("ckpt", "ckpt-5"))
        (folder / "step_5").rmdir()
    checkpoint = opened(folder)
    assert (COPY in checkpoint.skipped.values()) == copied
    whole = dict(np.load(FIXTURES / f"{name}.npz"))
    (tmp_path / "whole").mkdir()
    np.savez(tmp_path / "whole" / "step_5.npz", **whole)
    found, expected = squares(folder, tmp_path / "a.db"), squares(tmp_path / "whole", tmp_path / "b.db")
    assert [row[0] for row in found] == [row[0] for row in expected]
    assert [row[1] for row in found] == pytest.approx([row[1] for row in expected], rel=1e-7)
    if copied:
        assert layers(folder, tmp_path / "c.db") == pytest.approx(
            layers(tmp_path / "whole", tmp_path / "d.db"), rel=1e-7
        )
    else:
        assert "the numbers in their names count variables" in checkpoint.notes[0]


def test_a_missing_shard_is_named(tmp_path):
    folder = series(tmp_path, "shards")
    (folder / "step_5" / "subclassed_00001.weights.h5").unlink()
    with pytest.raises(CorruptCheckpoint, match="1 are missing, the first of them 'subclassed_00001"):
        opened(folder)


def test_an_index_names_only_files_beside_it():
    for name in ("../x.weights.h5", "/etc/passwd", ["a/b.h5"], 7):
        text = f'{{"weight_map": {{"/a/vars": {name!r}}}}}'.replace("'", '"').encode()
        (unit,) = open_series_of({"step_1/model.weights.json": text})
        with pytest.raises(CorruptCheckpoint, match="not an index"):
            unit.open()


def open_series_of(files):
    from normscope.checkpoints.series.discovery import find_series

    return find_series(MemoryFolder("m", files)).checkpoints


def test_a_compressed_archive(tmp_path):
    """Somebody packed the archive again: small ones are unpacked in memory."""
    with (
        zipfile.ZipFile(FIXTURES / "subclassed.keras") as old,
        zipfile.ZipFile(tmp_path / "step_5.keras", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    (tmp_path / "whole").mkdir()
    shutil.copy(FIXTURES / "subclassed.keras", tmp_path / "whole" / "step_5.keras")
    found = rows(tmp_path / "step_5.keras", tmp_path / "a.db")
    check_rows(found, rows(tmp_path / "whole", tmp_path / "b.db"))


def test_local_data_is_mapped():
    checkpoint = open_file(LocalFile(FIXTURES / "subclassed.keras"))
    assert all(checkpoint.zero_copy(name) for name in checkpoint.tensors)
    assert all(checkpoint.stored_range(name, 0, 4) for name in checkpoint.tensors)


def test_a_file_of_more_parts_than_allowed_is_refused(monkeypatch):
    """A few bytes can refer to each other so often that looking at them takes for ever."""
    monkeypatch.setattr(hdf5_bytes, "_STEPS", 20)
    with pytest.raises(CorruptCheckpoint, match="too many parts"):
        open_file(LocalFile(FIXTURES / "subclassed.keras"))


# -- HDF5, against h5py --------------------------------------------------------------------------


@pytest.fixture
def h5py():
    return pytest.importorskip("h5py")


def as_h5py_reads(h5py, path):
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda n, o: found.update({n: o[()]} if isinstance(o, h5py.Dataset) else {}))
    return found


LAYOUTS = {
    "contiguous": {},
    "chunked": {"chunks": (7, 3)},
    "gzip": {"chunks": (7, 3), "compression": "gzip"},
    "gzip, shuffle and checksums": {
        "chunks": (8, 20), "compression": "gzip", "shuffle": True, "fletcher32": True,
    },
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i8", "u1", "?"])
def test_every_layout_is_what_h5py_reads(tmp_path, h5py, layout, dtype):
    rng, path = np.random.default_rng(0), tmp_path / "step_1.h5"
    with h5py.File(path, "w") as file:
        for i in range(40):  # enough for a tree of names of two levels
            file.create_dataset(f"layer_{i}/w", data=rng.random((30, 20)).astype(dtype), **LAYOUTS[layout])
        file["layer_0/s"], file["layer_0/e"] = np.float32(2.5), np.zeros((0, 3), "f4")
    checkpoint = open_file(LocalFile(path))
    expected = as_h5py_reads(h5py, path)
    assert checkpoint.tensors.keys() == expected.keys()
    for name, value in list(expected.items())[::7]:
        data = value.tobytes()
        assert bytes(checkpoint.extents[name].read(0, len(data))) == data
        for start in range(0, len(data), 211):
            assert (
                bytes(checkpoint.extents[name].read(start, min(start + 300, len(data))))
                == data[start : start + 300]
            )


def test_other_ways_to_write_a_file(tmp_path, h5py):
    """Newer headers, compact data, links of both kinds."""
    values = np.arange(6, dtype="f4").reshape(2, 3)
    for name, options in {"new": {"libver": "latest"}, "old": {}}.items():
        path = tmp_path / f"{name}.h5"
        with h5py.File(path, "w", **options) as file:
            file["a/w"] = values
            file["a/tied"] = file["a/w"]
            file["a/by name"] = h5py.SoftLink("/a/w")
            space, kind = h5py.h5s.create_simple((2, 3)), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            kind.set_layout(h5py.h5d.COMPACT)
            h5py.h5d.create(file["a"].id, b"compact", h5py.h5t.NATIVE_FLOAT, space, kind)
            file["a/compact"][...] = values
        checkpoint = open_file(LocalFile(path))
        assert checkpoint.tensors.keys() == {"a/w", "a/tied", "a/compact"}
        assert checkpoint.tensors["a/w"].storage == checkpoint.tensors["a/tied"].storage
        assert checkpoint.skipped["a/by name"].startswith("a link by name")
        for tensor in checkpoint.tensors:
            assert bytes(checkpoint.read(tensor, 0, 24)) == values.tobytes()


def test_names_of_transformers_tensorflow_models(tmp_path, h5py):
    with h5py.File(tmp_path / "step_1.h5", "w") as file:
        inside = "bert/tf_bert_model/bert/encoder/layer_._3/attention/self/query/kernel:0"
        file[inside], file["mlm___cls/cls/predictions/bias:0"] = np.ones((2, 2), "f4"), np.ones(3, "f4")
        file["top_level_model_weights"] = np.ones(0, "f4")
    with ns.scan(tmp_path, tmp_path / "run.db") as run:
        found = run.query("SELECT name, layer, role FROM tensor ORDER BY name")
    assert found[-1] == ("tf_bert_model/bert/encoder/layer_._3/attention/self/query/kernel", 3, "q")


def test_a_path_that_is_the_name_of_another(tmp_path, h5py):
    """Layers are left out of names, unless two datasets would have one name: none is lost."""
    path = tmp_path / "step_1.h5"
    with h5py.File(path, "w") as file:
        for n in (1, 2, 3):
            file.create_dataset("/".join(["a"] * n + ["w"]), data=np.ones(n, "f4"))
    assert {name: tensor.shape for name, tensor in open_file(LocalFile(path)).tensors.items()} == {
        "a/w": (1,), "a/a/w": (2,), "a/a/a/w": (3,)}  # fmt: skip


def test_what_is_not_read_says_so(tmp_path, h5py):
    path = tmp_path / "step_1.h5"
    cases = {
        "dense": lambda f: [f.create_dataset(f"g/{i}", data=np.ones(2, "f4")) for i in range(30)],
        "big-endian": lambda f: f.create_dataset("w", data=np.ones(2, ">f4")),
        "filter": lambda f: f.create_dataset("w", data=np.ones(64, "f4"), compression="lzf"),
        "another file": lambda f: f.create_dataset("w", (2,), "f4", external=[("x.bin", 0, 8)]),
    }
    for words, write in cases.items():
        with h5py.File(path, "w", libver="latest" if words == "dense" else None) as file:
            write(file)
        with pytest.raises(CheckpointError, match=words):
            open_file(LocalFile(path))


def test_state_that_older_releases_store(tmp_path, h5py):
    """Random generators and metrics are named; running statistics have a name that the rules know."""
    with h5py.File(tmp_path / "step_1.weights.h5", "w") as file:
        for path, name, values in (
            ("layers/dropout/seed_generator", "seed_generator", [np.ones(2, "u4")]),
            ("metrics/mean", "loss", [np.ones((), "f4")]),
            ("_layer_checkpoint_dependencies/dense", "dense_9", [np.ones((3, 2), "f4"), np.ones(2, "f4")]),
            ("layers/bn1", "bn1", [np.ones(4, "f4")] * 4),
        ):
            group = file.create_group(f"{path}/vars")
            group.attrs["name"] = name
            for index, value in enumerate(values):
                group[str(index)] = value
    checkpoint = opened(tmp_path)
    assert checkpoint.skipped == {
        "dropout.seed_generator.vars.0": "state of a random generator",
        "metrics": "a metric",
    }
    statistics = {"bn1.gamma", "bn1.beta", "bn1.moving_mean", "bn1.moving_variance"}
    assert checkpoint.tensors.keys() == {"dense.kernel", "dense.bias"} | statistics


def test_quantised_layers_are_refused(tmp_path, h5py):
    """Keras's int8 layers: the numbers are not the weights, and the scale beside them is no weight."""
    with h5py.File(tmp_path / "step_1.weights.h5", "w") as file:
        group = file.create_group("layers/dense/vars")
        group.attrs["name"] = "dense"
        for i, value in enumerate((np.ones((9, 9), "i1"), np.ones(9, "f4"), np.ones(9, "f4"))):
            group[str(i)] = value
    with pytest.raises(CheckpointError, match="quantised weights"):
        ns.scan(tmp_path, tmp_path / "run.db")


def test_values_that_were_never_written_are_named(tmp_path, h5py):
    path = tmp_path / "step_1.h5"
    with h5py.File(path, "w") as file:
        file["w"] = np.ones(2, "f4")
        file.create_dataset("huge", (2**40, 2**20), "f4")
    checkpoint = open_file(LocalFile(path))
    assert list(checkpoint.tensors) == ["w"]
    assert checkpoint.skipped == {"huge": "no values were ever written"}


@pytest.mark.parametrize("name", ("subclassed.weights.h5", "subclassed.keras", "shards", "exported"))
def test_from_any_place_in_parts_and_again(tmp_path, name):
    """Over fsspec, with several workers and a scan that continues, the rows are those of a local folder."""
    check_places(tmp_path, series(tmp_path, name))


def check_places(tmp_path, local):
    fsspec = pytest.importorskip("fsspec")
    memory, place = fsspec.filesystem("memory"), f"/{tmp_path.name}"
    memory.put(str(local), place, recursive=True)
    source = f"memory://{place}"
    found = rows(source, tmp_path / "remote.db", workers=2)
    check_rows(found, rows(local, tmp_path / "local.db"))
    check_rows(rows(source, tmp_path / "remote.db"), found)
    memory.rm(place, recursive=True)
