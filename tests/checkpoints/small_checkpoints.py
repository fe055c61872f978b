"""Small checkpoints to write, and what their bytes should be."""

import numpy as np
import torch
from safetensors.torch import save_file


def raw(tensor):
    """The row-major bytes of a torch tensor."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def put(path, value=1.0, **extra):
    """Write a checkpoint of one tensor, `w`, three times `value`; with torch, `extra` beside the model."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {"w": torch.full((3,), float(value))}
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save({"model": tensors, **extra}, path)
    return path


def check_arrays(checkpoint, arrays):
    """Every tensor reads like its array, whole and in parts."""
    assert checkpoint.tensors.keys() == arrays.keys()
    for name, array in arrays.items():
        assert checkpoint.tensors[name].shape == array.shape
        whole = np.ascontiguousarray(array).tobytes()
        assert bytes(checkpoint.read(name, 0, len(whole))) == whole
        for start in range(0, len(whole), 13):
            stop = min(start + 31, len(whole))
            assert bytes(checkpoint.read(name, start, stop)) == whole[start:stop]
