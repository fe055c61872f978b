"""Whole tensors out of a checkpoint are the ones that the format's own library loads."""

import json
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from normscope.checkpoints import arrays, open_file
from normscope.checkpoints.arrays import as_tensor, read_tensor
from normscope.checkpoints.base import ITEM_SIZES
from normscope.checkpoints.storage.local import LocalFile
from normscope.errors import CheckpointError
from tests.checkpoints.small_checkpoints import put, raw

DTYPES = [getattr(torch, name) for name in ITEM_SIZES if name != "complex32"]  # torch itself warns about it


def random_tensor(dtype, *shape):
    size = ITEM_SIZES[str(dtype).removeprefix("torch.")]
    values = torch.randint(0, 2 if dtype == torch.bool else 256, (int(np.prod(shape)) * size,))
    return values.to(torch.uint8).view(dtype).reshape(shape)


def same(loaded, expected):
    assert loaded.dtype == expected.dtype
    assert loaded.shape == expected.shape
    assert raw(loaded) == raw(expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_what_torch_saved(tmp_path, dtype, zipped):
    path = tmp_path / "model.pt"
    tensors = {"w": random_tensor(dtype, 5, 3), "scalar": random_tensor(dtype), "none": torch.empty(0, 4)}
    tensors["transposed"] = tensors["w"].t()
    torch.save(tensors, path, _use_new_zipfile_serialization=zipped)
    checkpoint = open_file(LocalFile(path))
    expected = torch.load(path, weights_only=True) if zipped else tensors  # torch cannot load a legacy float8
    for name in tensors:
        same(read_tensor(checkpoint, name), expected[name])


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.complex128], ids=str)
def test_what_safetensors_saved(tmp_path, dtype):
    path = tmp_path / "model.safetensors"
    save_file({"w": random_tensor(dtype, 4, 2, 3), "empty": torch.empty(0, dtype=dtype)}, path)
    checkpoint = open_file(LocalFile(path))
    for name, expected in load_file(path).items():
        same(read_tensor(checkpoint, name), expected)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("piece", [64, 1 << 26])
def test_what_numpy_saved_is_read_in_pieces(tmp_path, monkeypatch, save, piece):
    monkeypatch.setattr(arrays, "PIECE", piece)
    path = tmp_path / "model.npz"
    written = {
        "w": np.arange(200.0).reshape(20, 10),
        "column": np.asfortranarray(np.arange(60).reshape(6, 10)),
    }
    save(path, **written)
    checkpoint = open_file(LocalFile(path))
    for name, expected in written.items():
        same(read_tensor(checkpoint, name), torch.from_numpy(np.ascontiguousarray(expected)))


def test_the_tensor_is_a_copy(tmp_path):
    path = put(tmp_path / "model.safetensors")
    checkpoint = open_file(LocalFile(path))
    read_tensor(checkpoint, "w").fill_(7)
    assert read_tensor(checkpoint, "w").tolist() == load_file(path)["w"].tolist() == [1, 1, 1]


def test_a_tensor_that_is_not_there(tmp_path):
    checkpoint = open_file(LocalFile(put(tmp_path / "model.safetensors")))
    with pytest.raises(CheckpointError, match=r"no tensor 'v'; it has 'w'\."):
        read_tensor(checkpoint, "v")


def test_a_dtype_that_torch_does_not_have(tmp_path):
    header = json.dumps({"w": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(3))
    with pytest.raises(CheckpointError, match="'w' has the dtype float6_e2m3fn, which torch cannot load"):
        read_tensor(open_file(LocalFile(path)), "w")


def test_elements_are_copied():
    raw = bytearray(struct.pack("<2f", 1, 2))
    values = as_tensor(raw, "float32")
    raw[:] = bytes(8)
    assert values.tolist() == [1, 2]
