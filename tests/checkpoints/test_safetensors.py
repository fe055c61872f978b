"""safetensors against the reference implementation, and against files it refuses."""

import json
import struct

import pytest
import torch
from safetensors.torch import save_file

from normscope.checkpoints import open_file
from normscope.checkpoints.formats.safetensors import open_safetensors, open_sharded
from normscope.checkpoints.storage.local import LocalFile, LocalFolder
from normscope.errors import CorruptCheckpoint
from tests.checkpoints.small_checkpoints import raw

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


def write(path, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return LocalFile(path)


def entry(start, stop, shape=None, dtype="F32"):
    return {
        "dtype": dtype,
        "shape": [(stop - start) // 4] if shape is None else shape,
        "data_offsets": [start, stop],
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(tmp_path, dtype):
    values = torch.randn(7, 5).to(dtype)
    save_file(
        {"w": values, "empty": torch.zeros(0, 3).to(dtype), "one": values[0, 0].clone()},
        tmp_path / "m.safetensors",
    )
    with_header = open_file(LocalFile(tmp_path / "m.safetensors"))
    assert with_header.format == "safetensors"
    assert with_header.tensors["w"].dtype == str(dtype).removeprefix("torch.")
    assert with_header.tensors["w"].shape == (7, 5)
    assert with_header.tensors["one"].shape == ()
    size = 35 * values.element_size()
    assert bytes(with_header.read("w", 0, size)) == raw(values)
    assert bytes(with_header.read("w", 3, size - 2)) == raw(values)[3:-2]
    assert bytes(with_header.read("empty", 0, 0)) == b""


def test_names_in_any_script(tmp_path):
    save_file({"層.0.вес": torch.arange(3.0)}, tmp_path / "step_1.safetensors", {"author": "Zoë 🙂"})
    checkpoint = open_file(LocalFile(tmp_path / "step_1.safetensors"))
    assert bytes(checkpoint.read("層.0.вес", 0, 12)) == raw(torch.arange(3.0))


def test_opening_reads_only_the_header(tmp_path):
    save_file({"w": torch.zeros(1000)}, tmp_path / "m.safetensors")
    file = LocalFile(tmp_path / "m.safetensors")
    open_safetensors(file)
    assert not file.is_mapped


def test_checkpoints_of_one_run_share_their_header(tmp_path):
    for step in (1, 2):
        save_file({"w": torch.full((4,), float(step))}, tmp_path / f"{step}.safetensors")
    first, second = (open_file(LocalFile(tmp_path / f"{step}.safetensors")) for step in (1, 2))
    assert first.tensors is second.tensors
    assert bytes(first.read("w", 0, 16)) != bytes(second.read("w", 0, 16))


BAD_HEADERS = {
    "no JSON": b"{not json",
    "a list": b"[]",
    "a number": b"7",
    "not UTF-8": b'{"\xff\xfe": 1}',
    "a key twice": b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{}}',
    "deep": b"[" * 100_000,
    "unknown dtype": {"a": entry(0, 8, dtype="F33")},
    "shape and size disagree": {"a": entry(0, 8, shape=[3])},
    "negative shape": {"a": entry(0, 8, shape=[-2, -1])},
    "a fraction": {"a": entry(0, 8, shape=[2.0])},
    "a boolean": {"a": entry(0, 8, shape=[True, 2])},
    "huge shape": {"a": entry(0, 8, shape=[2**62, 2**62])},
    "backwards": {"a": {"dtype": "F32", "shape": [0], "data_offsets": [8, 4]}},
    "overlap": {"a": entry(0, 8), "b": entry(4, 8)},
    "hole": {"a": entry(0, 4), "b": entry(6, 8, shape=[1], dtype="F16")},
    "not all used": {"a": entry(0, 4)},
    "beyond the end": {"a": entry(0, 12)},
    "three offsets": {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4, 8]}},
    "no offsets": {"a": {"dtype": "F32", "shape": [2]}},
    "no object": {"a": 5},
    "shape is text": {"a": entry(0, 8, shape="22")},
    "too many brackets": b'{"a":' + b"[]," * 700_000 + b"1}",
}


@pytest.mark.parametrize("header", BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_headers_that_contradict_themselves(tmp_path, header):
    with pytest.raises(CorruptCheckpoint, match=r"m\.safetensors") as refused:
        open_safetensors(write(tmp_path / "m.safetensors", header, b"\0" * 8))
    assert str(refused.value).count("Copy or save it again.") == 1


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 10**9, 1000])
def test_a_header_longer_than_the_file(tmp_path, length):
    file = write(tmp_path / "m.safetensors", {"a": entry(0, 8)}, b"\0" * 8, length)
    with pytest.raises(CorruptCheckpoint, match="truncated"):
        open_file(file)


@pytest.mark.parametrize("keep", [0, 5, 7, 8, 9, 40, 400, -1])
def test_truncation(tmp_path, keep):
    path = tmp_path / "m.safetensors"
    save_file({"w": torch.zeros(100)}, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CorruptCheckpoint):
        open_file(LocalFile(path))


def shards(tmp_path):
    tensors = {f"layer.{i}": torch.randn(3, i + 1) for i in range(6)}
    names = {f"layer.{i}": f"model-0000{i % 2 + 1}-of-00002.safetensors" for i in range(6)}
    for shard in set(names.values()):
        save_file({k: v for k, v in tensors.items() if names[k] == shard}, tmp_path / shard)
    return tensors, names


def test_a_sharded_checkpoint(tmp_path):
    tensors, names = shards(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": names}))
    checkpoint = open_sharded(LocalFolder(tmp_path), index.name)
    assert checkpoint.tensors.keys() == tensors.keys()
    assert len({tensor.storage for tensor in checkpoint.tensors.values()}) == 6
    for name, values in tensors.items():
        assert bytes(checkpoint.read(name, 0, checkpoint.tensors[name].nbytes)) == raw(values)
    assert checkpoint.nbytes == sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))


@pytest.mark.parametrize(
    "content",
    [
        {"weight_map": {"layer.0": "../outside.safetensors"}},
        {"weight_map": {"layer.0": "/etc/passwd"}},
        {"weight_map": {"layer.0": "gone.safetensors"}},
        {"weight_map": {"layer.9": "model-00001-of-00002.safetensors"}},
        {"weight_map": {"layer.0": 5}},
        {"weight_map": []},
        {},
    ],
    ids=str,
)
def test_an_index_that_does_not_match(tmp_path, content):
    shards(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(content))
    with pytest.raises(CorruptCheckpoint):
        open_sharded(LocalFolder(tmp_path), "model.safetensors.index.json")
