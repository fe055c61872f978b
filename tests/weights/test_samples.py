"""Distances estimated from a sample compared with those of all weights."""

import numpy as np
import pytest
import torch

from normscope.checkpoints.series.series import open_series
from normscope.weights.soundness.samples import ELEMENTS, PIECE, choose_pieces, sampled_distances
from tests.conftest import save_series


def write(folder, states):
    return open_series(save_series(folder, states)).entries


def walk(shapes, steps, dtype=torch.float32):
    generator = torch.Generator().manual_seed(2)
    state = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    for step in range(steps):
        yield step, {name: value.to(dtype) for name, value in state.items()}
        for number, name in enumerate(shapes):  # tensors move at different speeds
            state[name] = state[name] + (1 + number) * 0.01 * torch.randn(shapes[name], generator=generator)


def distances(states):
    rows = np.stack([np.concatenate([t.double().ravel() for t in s.values()]) for s in states.values()])
    return np.sum((rows[:, None] - rows[None]) ** 2, axis=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_small_model_is_read_whole(tmp_path, dtype):
    states = dict(walk({"a": (30, 40), "b": (7,), "empty": (0, 3)}, 5, dtype))
    found = sampled_distances(write(tmp_path / "s", states), {"a", "b", "empty"})
    np.testing.assert_allclose(found, distances(states), rtol=1e-9, atol=1e-9)


def test_a_large_model_is_estimated(tmp_path):
    states = dict(walk({"a": (1100, 700), "b": (3000,), "c": (900, 777)}, 4))
    found = sampled_distances(write(tmp_path / "s", states), {"a", "b", "c"})
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(found[off], distances(states)[off], rtol=0.02)


def test_only_the_named_tensors_count(tmp_path):
    states = dict(walk({"a": (30, 40), "b": (7,)}, 3))
    found = sampled_distances(write(tmp_path / "s", states), {"b"})
    np.testing.assert_allclose(found, distances({i: {"b": s["b"]} for i, s in states.items()}), rtol=1e-9)


def test_the_sample_is_small_spread_and_weighs_as_much_as_the_model(tmp_path):
    shapes = {"tiny": (5,), "a": (1000, 1000), "b": (3000,), "c": (700, 3000)}
    (entry,) = write(tmp_path / "s", dict(walk(shapes, 1)))
    checkpoint = entry.open()
    pieces = choose_pieces(checkpoint, set(shapes), ELEMENTS)
    read = sum(p.stop - p.start for p in pieces)
    assert 0.95 * ELEMENTS < read <= ELEMENTS + PIECE
    stands_for = sum((p.stop - p.start) * p.weight for p in pieces)
    assert stands_for == pytest.approx(sum(t.numel for t in checkpoint.tensors.values()), rel=0.02)
    assert all(0 <= p.start < p.stop <= checkpoint.tensors[p.name].numel for p in pieces)
    inside = sorted(p.start for p in pieces if p.name == "c")
    assert len(set(np.diff(inside))) == 1 and len(inside) > 50


def test_few_pieces_are_read_if_reads_are_costly(tmp_path):
    shapes = {f"t{i}": (100, 100 + i) for i in range(60)}
    path = tmp_path / "step_1.npz"
    np.savez_compressed(path, **{n: t.numpy() for n, t in next(walk(shapes, 1))[1].items()})
    (entry,) = open_series(path).entries
    pieces = choose_pieces(entry.open(), set(shapes), 10_000)
    assert [p.name for p in pieces] == [f"t{i}" for i in range(59, 27, -1)]
    assert all(p.start == 0 and p.stop == 10_000 // 32 for p in pieces)
    for piece in pieces:
        assert piece.stop * piece.weight == pytest.approx(np.prod(shapes[piece.name]))
