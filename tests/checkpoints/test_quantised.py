"""Quantised checkpoints against the same models, dequantised by the libraries that wrote them."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from normscope.checkpoints import open_series

from .test_rank_layouts import check_rows, rows

FIXTURES = Path(__file__).parent / "fixtures" / "quantised"
CASES = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())


def whole(name):
    with np.load(FIXTURES / name / "whole.npz") as arrays:
        return {key: arrays[key] for key in arrays}


def opened(folder):
    return open_series(folder, default_step=1).entries[0].open()


def packed_copy(tmp_path, name, step=1):
    """The quantised model of a fixture, without the reference beside it."""
    folder = tmp_path / name / f"step_{step}"
    ignore = shutil.ignore_patterns("whole.npz")
    shutil.copytree(FIXTURES / name, folder, ignore=ignore)
    return folder


def values(checkpoint, name):
    tensor = checkpoint.tensors[name]
    data = checkpoint.read(name, 0, tensor.numel * 4)
    return np.frombuffer(data, np.float32).reshape(tensor.shape)


@pytest.mark.parametrize("name", CASES)
def test_every_value_is_that_of_the_library(tmp_path, name):
    expected = whole(name)
    checkpoint = opened(packed_copy(tmp_path, name))
    assert checkpoint.tensors.keys() == expected.keys()
    (note,) = [note for note in checkpoint.notes if note.startswith("dequantised from ")]
    assert len(note) < 200
    for key, array in expected.items():
        assert checkpoint.tensors[key].shape == array.shape, key
        if checkpoint.tensors[key].dtype == "float32":
            np.testing.assert_allclose(values(checkpoint, key), array, rtol=3e-7, atol=1e-9, err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_any_range_is_a_cut_of_the_whole(tmp_path, name):
    checkpoint = opened(packed_copy(tmp_path, name))
    for key in ("model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.experts.down_proj"):
        if key in checkpoint.tensors:
            size = checkpoint.tensors[key].nbytes
            everything = bytes(checkpoint.read(key, 0, size))
            for start, stop in [
                (0, 4),
                (4, 4),
                (12, 1004),
                (size // 2 - 20, size // 2 + 400),
                (size - 8, size),
            ]:
                assert bytes(checkpoint.read(key, start, stop)) == everything[start:stop]


@pytest.mark.parametrize("name", CASES)
def test_every_row_of_a_scan_is_that_of_the_whole_model(tmp_path, name):
    """Two steps, the second one other weights: norms, updates, layers and roles, of each tensor."""
    packed_copy(tmp_path, name, 1)
    reference = tmp_path / "whole"
    reference.mkdir()
    state = {key: torch.from_numpy(array) for key, array in whole(name).items()}
    save_file(state, reference / "step_1.safetensors")
    for step, place in ((2, tmp_path / name), (2, reference)):
        changed = {
            key: value * (1 + 0.1 * torch.sin(torch.arange(value.numel())).view(value.shape))
            for key, value in state.items()
        }
        (place / f"step_{step}").mkdir()
        save_file(changed, place / f"step_{step}" / "model.safetensors")
    found, expected = rows(tmp_path / name, tmp_path / "q.db"), rows(reference, tmp_path / "w.db")
    check_rows(found, expected)
