"""npz, llama2.c and GGUF files against their own writers."""

import struct
import zipfile

import numpy as np
import pytest

from normscope.checkpoints import open_file, open_series
from normscope.checkpoints.storage.local import LocalFile
from normscope.errors import CheckpointError, CorruptCheckpoint, UnknownFormat
from tests.checkpoints.small_checkpoints import check_arrays


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path, save):
    rng = np.random.default_rng(0)
    arrays = {
        "w": rng.standard_normal((3, 5)).astype(np.float32),
        "double": rng.standard_normal(7),
        "half/x": rng.standard_normal((2, 2, 3)).astype(np.float16),
        "fortran": np.asfortranarray(rng.standard_normal((4, 3, 2))),
        "ids": np.arange(4),
        "scalar": np.float32(2.0),
        "empty": np.zeros((0, 4)),
    }
    arrays["scalar"] = np.asarray(arrays["scalar"])
    save(tmp_path / "step_5.npz", **arrays)
    (entry,) = open_series(tmp_path).entries
    checkpoint = entry.open()
    assert checkpoint.format == "npz"
    check_arrays(checkpoint, arrays)
    assert checkpoint.tensors["half/x"].dtype == "float16"


def test_npz_entries_that_are_not_parameters(tmp_path):
    np.savez(
        tmp_path / "m.npz", w=np.ones(3), step=np.int64(12), text=np.array("abc"), big=np.ones(2, ">f4"),
        objects=np.array([{}], dtype=object), opt_state=np.ones(3), bits=np.ones(2, "V2"),
    )  # fmt: skip
    checkpoint = open_file(LocalFile(tmp_path / "m.npz"))
    assert set(checkpoint.tensors) == {"w", "bits"}
    assert set(checkpoint.skipped) == {"step", "text", "big", "objects", "opt_state"}
    assert checkpoint.step == 12
    assert checkpoint.tensors["bits"].dtype == "bfloat16"
    assert "bfloat16" in checkpoint.notes[0]


def test_npz_without_numbers(tmp_path):
    np.savez(tmp_path / "m.npz", text=np.array("abc"))
    with pytest.raises(UnknownFormat):
        open_file(LocalFile(tmp_path / "m.npz"))


def npy(text, data=b"", version=b"\1\0"):
    header = text.encode()
    length = struct.pack("<H", len(header)) if version == b"\1\0" else struct.pack("<I", len(header))
    return b"\x93NUMPY" + version + length + header + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello world, no array",
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", b"\0" * 11),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999,), }", b"\0" * 12),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }", b"\0" * 12),
        npy("__import__('os').system('x')"),
        npy("(" * 5000),
    ],
    ids=range(7),
)
def test_npz_members_that_are_not_arrays(tmp_path, content):
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        archive.writestr("w.npy", content)
    with pytest.raises(CorruptCheckpoint):
        open_file(LocalFile(tmp_path / "m.npz"))


def test_an_archive_that_claims_more_than_it_unpacks_to(tmp_path):
    path = tmp_path / "m.npz"
    np.savez_compressed(path, w=np.zeros(1000, np.float32))
    data = path.read_bytes()
    size = 4000 + 128
    forged = data.replace(struct.pack("<L", size), struct.pack("<L", size + 4_000_000_000 // 4 * 4))
    assert forged != data
    path.write_bytes(forged)
    with pytest.raises(CorruptCheckpoint):
        open_file(LocalFile(path)).read("w", 0, 4_000_000_000)


SIZES = {"dim": 8, "hidden": 12, "layers": 2, "heads": 4, "kv_heads": 2, "vocab": 10, "seq": 6}


def llama_weights(shared):
    rng = np.random.default_rng(1)
    d, h, kv, v = SIZES["dim"], SIZES["hidden"], 4, SIZES["vocab"]
    shapes = {"tok_embeddings": (v, d), "norm": (d,)}
    for i in range(SIZES["layers"]):
        shapes |= {
            f"layers.{i}.attention_norm": (d,), f"layers.{i}.ffn_norm": (d,),
            f"layers.{i}.attention.wq": (d, d), f"layers.{i}.attention.wk": (kv, d),
            f"layers.{i}.attention.wv": (kv, d), f"layers.{i}.attention.wo": (d, d),
            f"layers.{i}.feed_forward.w1": (h, d), f"layers.{i}.feed_forward.w2": (d, h),
            f"layers.{i}.feed_forward.w3": (h, d),
        }  # fmt: skip
    if not shared:
        shapes["output"] = (v, d)
    return {f"{name}.weight": rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def each_layer(weights, *parts):
    return [weights[f"layers.{i}.{part}.weight"] for part in parts for i in range(SIZES["layers"])]


MATRICES = (
    "attention.wq", "attention.wk", "attention.wv", "attention.wo",
    "feed_forward.w1", "feed_forward.w2", "feed_forward.w3",
)  # fmt: skip


def write_v0(path, weights, shared):
    """As run.c maps it: embeddings, then each kind of weight for all layers, then rotary tables."""
    sizes = [*SIZES.values()]
    sizes[5] *= 1 if shared else -1
    parts = [weights["tok_embeddings.weight"], *each_layer(weights, "attention_norm", *MATRICES[:4])]
    parts += [
        *each_layer(weights, "ffn_norm", *MATRICES[4:]),
        weights["norm.weight"],
        np.ones(12),
        np.ones(0),
    ]
    if not shared:
        parts.append(weights["output.weight"])
    path.write_bytes(struct.pack("<7i", *sizes) + b"".join(p.astype("<f4").tobytes() for p in parts))


def header(version, shared, *more):
    head = struct.pack("<Ii7iB", 0x616B3432, version, *SIZES.values(), shared)
    return (head + b"".join(struct.pack("<i", n) for n in more)).ljust(256, b"\0")


def ordered(weights):
    norms = [*each_layer(weights, "attention_norm", "ffn_norm"), weights["norm.weight"]]
    matrices = [weights["tok_embeddings.weight"], *each_layer(weights, *MATRICES)]
    return norms, matrices + ([weights["output.weight"]] if "output.weight" in weights else [])


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("version", [0, 1])
def test_llama2c_float32(tmp_path, version, shared):
    weights = llama_weights(shared)
    path = tmp_path / "ckpt_30.bin"
    if version == 0:
        write_v0(path, weights, shared)
    else:
        norms, matrices = ordered(weights)
        path.write_bytes(header(1, shared) + b"".join(w.tobytes() for w in norms + matrices))
    checkpoint = open_series(tmp_path).entries[0].open()
    assert checkpoint.format == "llama2.c"
    check_arrays(checkpoint, weights)


def test_llama2c_quantised(tmp_path):
    weights, group = llama_weights(False), 4
    norms, matrices = ordered(weights)
    data, kept = b"".join(w.tobytes() for w in norms), {}
    for w in matrices:
        rows = w.reshape(-1, group)
        scale = (np.abs(rows).max(1) / 127).astype(np.float32)
        values = np.round(rows / scale[:, None]).astype(np.int8)
        data += values.tobytes() + scale.tobytes()
        kept[id(w)] = (values.astype(np.float32) * scale[:, None]).reshape(w.shape)
    path = tmp_path / "m.bin"
    path.write_bytes(header(2, False, group) + data)
    checkpoint = open_file(LocalFile(path))
    check_arrays(checkpoint, {name: kept.get(id(w), w) for name, w in weights.items()})
    assert "dequantised" in checkpoint.notes[0]


@pytest.mark.parametrize(
    "change", [lambda d: d[:-4], lambda d: d + b"x", lambda d: d[:4] + b"\x09" + d[5:], lambda d: d[:100]]
)
def test_llama2c_that_does_not_fit(tmp_path, change):
    norms, matrices = ordered(llama_weights(True))
    path = tmp_path / "m.bin"
    path.write_bytes(change(header(1, True) + b"".join(w.tobytes() for w in norms + matrices)))
    with pytest.raises(CorruptCheckpoint):
        open_file(LocalFile(path))


def write_gguf(path, arrays, kinds=()):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "ü"])
    writer.add_array("numbers", [1, 2, 3])
    for name, array in arrays.items():
        kind = dict(kinds).get(name)
        if kind is None:
            writer.add_tensor(name, array)
        else:
            quantised = gguf.quants.quantize(array, kind)
            writer.add_tensor(name, quantised, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_gguf_plain(tmp_path):
    rng = np.random.default_rng(2)
    arrays = {
        "token_embd.weight": rng.standard_normal((6, 32)).astype(np.float32),
        "blk.0.attn_q.weight": rng.standard_normal((4, 32)).astype(np.float16),
        "blk.0.attn_norm.weight": rng.standard_normal(32).astype(np.float32),
    }
    write_gguf(tmp_path / "m-7.gguf", arrays)
    checkpoint = open_series(tmp_path).entries[0].open()
    assert checkpoint.format == "gguf"
    assert checkpoint.notes == ()
    check_arrays(checkpoint, arrays)


def test_gguf_quantised(tmp_path):
    gguf = pytest.importorskip("gguf")
    rng = np.random.default_rng(3)
    kinds = {name: gguf.GGMLQuantizationType[name] for name in ("Q8_0", "Q4_0", "BF16")}
    arrays = {name: rng.standard_normal((4, 64)).astype(np.float32) for name in kinds}
    write_gguf(tmp_path / "m.gguf", arrays, kinds)
    checkpoint = open_file(LocalFile(tmp_path / "m.gguf"))
    assert checkpoint.notes == ("dequantised from Q4_0, Q8_0",)
    assert checkpoint.tensors["BF16"].dtype == "bfloat16"
    expected = {
        name: gguf.quants.dequantize(gguf.quants.quantize(array, kinds[name]), kinds[name])
        for name, array in arrays.items()
        if name != "BF16"
    }
    for name, array in expected.items():
        assert checkpoint.tensors[name].dtype == "float32"
        assert bytes(checkpoint.read(name, 0, array.nbytes)) == array.tobytes()
        assert bytes(checkpoint.read(name, 40, 777)) == array.tobytes()[40:777]


def gguf_bytes(*, tensors=1, pairs=0, name=b"w", shape=(4,), kind=0, offset=0, version=3, data=b"\0" * 64):
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, pairs)
    head += struct.pack("<Q", len(name)) + name + struct.pack("<I", len(shape))
    head += b"".join(struct.pack("<Q", n) for n in shape) + struct.pack("<IQ", kind, offset)
    return head + b"\0" * (-len(head) % 32) + data


@pytest.mark.parametrize("kind", [2, 3, 6, 7, 8, 12, 14])
def test_gguf_with_an_empty_quantised_tensor(tmp_path, kind):
    """Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q6_K without a single block."""
    (tmp_path / "1.gguf").write_bytes(gguf_bytes(shape=(256, 0), kind=kind))
    checkpoint = open_series(tmp_path).entries[0].open()
    assert bytes(checkpoint.read("w", 0, 0)) == b""


def test_gguf_by_hand(tmp_path):
    (tmp_path / "m.gguf").write_bytes(gguf_bytes())
    assert open_file(LocalFile(tmp_path / "m.gguf")).tensors["w"].shape == (4,)


@pytest.mark.parametrize(
    "content",
    [
        gguf_bytes(tensors=2**63), gguf_bytes(pairs=2**40), gguf_bytes(shape=(2**61, 8)),
        gguf_bytes(shape=(2**63,)), gguf_bytes(offset=2**60), gguf_bytes(kind=9999), gguf_bytes(version=9),
        gguf_bytes(shape=(1,) * 9), gguf_bytes(kind=8, shape=(33,)), gguf_bytes(data=b""), gguf_bytes()[:40],
    ],
    ids=range(11),
)  # fmt: skip
def test_gguf_that_contradicts_itself(tmp_path, content):
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(CheckpointError):
        open_file(LocalFile(tmp_path / "m.gguf"))


@pytest.mark.parametrize("field", ["count", "size", "start"])
def test_any_number_of_an_archive_may_be_in_its_large_record(tmp_path, field):
    """Each that is too large for its field is all ones there, and stands in the record of 64 bits."""
    path = tmp_path / "step_1.npz"
    np.savez(path, w=np.arange(6.0))
    data = path.read_bytes()
    end = data.rfind(b"PK\5\6")
    count, size, start = struct.unpack("<HII", data[end + 10 : end + 20])
    large = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, end, 1)
    numbers = {"count": count, "size": size, "start": start}
    numbers[field] = 0xFFFF if field == "count" else 0xFFFFFFFF
    last = data[end : end + 10] + struct.pack("<HII", *numbers.values()) + data[end + 20 :]
    path.write_bytes(data[:end] + large + locator + last)
    (entry,) = open_series(path).entries
    assert bytes(entry.open().read("w", 0, 48)) == np.arange(6.0).tobytes()
