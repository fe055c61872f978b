"""ONNX exports of a model against its state dict, and small graphs made by hand."""

import io
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

import normscope as ns
from normscope.checkpoints import open_series
from normscope.checkpoints.base import Tensor
from normscope.checkpoints.extents import ByteRange
from normscope.checkpoints.formats.onnx.onnx_files import is_onnx
from normscope.checkpoints.formats.onnx.shared_values import transposed_copies
from normscope.checkpoints.series.discovery import find_series
from normscope.checkpoints.storage.local import LocalFile
from normscope.errors import CheckpointError, CorruptCheckpoint
from tests.checkpoints.hostile.onnx_files import external, field, graph, model, node, tensor
from tests.checkpoints.memory_files import MemoryFile, MemoryFolder
from tests.checkpoints.test_keras import check_places

FIXTURES = Path(__file__).parent / "fixtures" / "onnx"
EXPORTS = {
    "scripted.onnx": "whole", "dynamo.onnx": "whole", "external": "whole",
    "fresh_scripted.onnx": "fresh", "fresh_dynamo.onnx": "fresh",
}  # fmt: skip


def series(tmp_path, name, label="export"):
    folder = tmp_path / label
    folder.mkdir()
    if (FIXTURES / name).is_dir():
        shutil.copytree(FIXTURES / name, folder / "step_3")
    else:
        shutil.copy(FIXTURES / name, folder / "step_3.onnx")
    return folder


def sums(source, run, by):
    with ns.scan(source, run) as found:
        text = f"SELECT {by}, SUM(sumsq), COUNT(*) FROM weight JOIN tensor ON id = tensor GROUP BY {by}"
        return {row[0]: row[1:] for row in found.query(text)}


@pytest.mark.parametrize("name", EXPORTS)
@pytest.mark.parametrize("by", ["name", "component", "layer", "role"])
def test_the_sums_are_those_of_the_model_saved_whole(tmp_path, name, by):
    """Also of a model at the start, whose equal gains are stored once and whose tied head is stored twice."""
    whole = dict(np.load(FIXTURES / f"{EXPORTS[name]}.npz"))
    (tmp_path / "whole").mkdir()
    np.savez(tmp_path / "whole" / "step_3.npz", **whole)
    found = sums(series(tmp_path, name), tmp_path / "a.db", by)
    expected = sums(tmp_path / "whole", tmp_path / "b.db", by)
    if name == "fresh_dynamo.onnx" and by in ("name", "role"):  # the exporter keeps one name of a tied weight
        old, new = ("embed_tokens.weight", "lm_head.weight") if by == "name" else ("embedding", "head")
        expected[new] = expected.pop(old)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, rel=1e-7), key


def test_what_is_no_weight_is_named(tmp_path):
    (entry,) = open_series(series(tmp_path, "fresh_scripted.onnx")).entries
    checkpoint = entry.open()
    assert checkpoint.format == "onnx"
    assert checkpoint.skipped["lm_head.weight"] == "a transposed copy of embed_tokens.weight"
    assert "a constant (Pow)" in checkpoint.skipped.values()
    assert checkpoint.notes == (
        "parameters with equal values were stored once by the exporter; each of them counts",
    )
    with ns.scan(tmp_path / "export", tmp_path / "run.db") as run:
        assert ("inv_freq",) not in run.query("SELECT name FROM tensor")


def test_external_data_is_mapped_and_must_be_there(tmp_path):
    folder = series(tmp_path, "external")
    (entry,) = open_series(folder).entries
    checkpoint = entry.open()
    large = [name for name, t in checkpoint.tensors.items() if t.nbytes]
    assert all(checkpoint.zero_copy(name) for name in large)
    assert {checkpoint.stored_range(name, 0, 4).file.name.rsplit("/", 1)[-1] for name in large} == {
        "model.onnx_data"
    }
    (folder / "step_3" / "model.onnx_data").unlink()
    with pytest.raises(CorruptCheckpoint, match="'model.onnx_data', which is not a file of its folder"):
        open_series(folder).entries[0].open()


def opened(content, **beside):
    files = {"step_1/model.onnx": content, **{f"step_1/{n}": d for n, d in beside.items()}}
    (unit,) = find_series(MemoryFolder("m", files)).checkpoints
    return unit.open()


def matrix(name="w", shape=(2, 3), **options):
    return tensor(name, shape, raw=np.arange(np.prod(shape), dtype="<f4").tobytes(), **options)


def test_fields_of_every_kind():
    """Raw bytes, packed floats, and the numbers that half precision is stored as."""
    values = np.arange(6, dtype="f4")
    half = values.astype("f2").view("u2")
    packed = b"".join(_varint(int(v)) for v in half)
    content = model(
        graph(
            [node("MatMul", ["x", name], ["y"]) for name in ("a.raw", "a.float", "a.half")],
            [
                tensor("a.raw", (2, 3), raw=values.tobytes()),
                tensor("a.float", (2, 3), typed=(4, values.tobytes())),
                tensor("a.half", (2, 3), dtype=10, typed=(5, packed)),
            ],
        )
    )
    checkpoint = opened(content)
    assert bytes(checkpoint.read("a.raw", 0, 24)) == values.tobytes()
    assert bytes(checkpoint.read("a.float", 0, 24)) == values.tobytes()
    assert bytes(checkpoint.read("a.half", 0, 12)) == half.tobytes()


@pytest.mark.parametrize(("dtype", "place"), [(1, 5), (11, 5), (1, 7), (10, 7), (1, 10), (11, 4), (10, 4)])
def test_numbers_in_the_field_of_another_dtype_are_refused(dtype, place):
    """int32_data (5) has numbers of two bytes or less; those of float32 in it would be taken for its bits."""
    typed = place, b"\x01" * 8
    content = model(graph([node("MatMul", ["x", "a.w"], ["y"])], [tensor("a.w", (8,), dtype, typed=typed)]))
    with pytest.raises(CheckpointError, match=r"'a\.w' has values in a field of another dtype"):
        opened(content)


def _varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def test_a_weight_inside_a_branch():
    inside = graph([node("MatMul", ["x", "inner"], ["y"], name="/a/fc/MatMul")], [matrix("inner")])
    branch = field(5, field(1, b"then_branch") + field(6, inside))
    content = model(graph([node("If", ["c"], ["y"], name="/if", extra=branch)], [matrix("a.b")]))
    assert "inner" in opened(content).tensors


def test_quantised_exports_are_refused():
    content = model(
        graph(
            [node("DequantizeLinear", ["q", "s"], ["d"]), node("MatMul", ["x", "d"], ["y"])],
            [tensor("q", (9, 9), dtype=3, raw=bytes(81)), tensor("s", (9,), raw=bytes(36))],
        )
    )
    with pytest.raises(CheckpointError, match="quantised weights"):
        opened(content)


def test_external_data_below_the_folder():
    values = np.arange(6, dtype="<f4").tobytes()
    content = model(
        graph([node("MatMul", ["x", "a.w"], ["y"])], [external("a.w", (2, 3), "data/w.bin", 8, 24)])
    )
    checkpoint = opened(content, **{"data/w.bin": bytes(8) + values})
    assert bytes(checkpoint.read("a.w", 0, 24)) == values


def test_other_files_are_not_taken_for_onnx(tmp_path):
    for data in (
        b"\x08\x07" + b"\x12\x01a" * 9,
        b"\x08" * 40,
        struct.pack("<7i", *range(8, 15)),
        b"\x08\x07\x3a\x7f" + bytes(30),
    ):
        assert not is_onnx(MemoryFile("x", data))
    whole = (FIXTURES / "scripted.onnx").read_bytes()
    assert is_onnx(MemoryFile("x", whole))
    assert not is_onnx(MemoryFile("x", whole[:-5]))
    (tmp_path / "step_1.model").write_bytes(whole)
    assert ns.scan(tmp_path / "step_1.model", tmp_path / "run.db") is not None


def test_the_onnx_package_reads_the_same():
    onnx = pytest.importorskip("onnx")
    loaded = onnx.load(io.BytesIO((FIXTURES / "scripted.onnx").read_bytes()))
    checkpoint = opened((FIXTURES / "scripted.onnx").read_bytes())
    found = {i.name: onnx.numpy_helper.to_array(i) for i in loaded.graph.initializer}
    for name in found.keys() & checkpoint.tensors.keys():
        assert bytes(checkpoint.read(name, 0, found[name].nbytes)) == found[name].tobytes()


def test_a_local_file_with_its_data_beside_it(tmp_path):
    shutil.copytree(FIXTURES / "external", tmp_path / "step_9")
    assert LocalFile(tmp_path / "step_9" / "model.onnx").size
    (entry,) = open_series(tmp_path / "step_9" / "model.onnx", default_step=9).entries
    assert entry.open().nbytes > 15_000


@pytest.mark.parametrize("name", ("scripted.onnx", "external"))
def test_from_any_place_in_parts_and_again(tmp_path, name):
    """Over fsspec, with several workers and a scan that continues, the rows are those of a local folder."""
    check_places(tmp_path, series(tmp_path, name))


@pytest.mark.parametrize(("kind", "tied"), [("random", True), ("other", False), ("zeros", False)])
def test_a_head_is_a_transposed_embedding_if_its_values_say_so(kind, tied):
    """Two matrices of zeros are equal, too, and need not be one."""
    table = np.zeros((7, 5)) if kind == "zeros" else np.random.default_rng(0).standard_normal((7, 5))
    head = np.ascontiguousarray(table.T) + (kind == "other")
    values = {"embed": table.astype("f4"), "head": head.astype("f4")}
    tensors = {name: Tensor(name, value.shape, "float32", name) for name, value in values.items()}
    extents = {name: ByteRange(MemoryFile(name, value.tobytes()), 0) for name, value in values.items()}
    found = transposed_copies(tensors, extents, ["embed"], ["head"])
    assert found == ({"head": "embed"} if tied else {})
