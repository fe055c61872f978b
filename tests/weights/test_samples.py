"""The table of all pairs, from a sample of real files, compared with one of all weights."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from normscope.checkpoints.series.series import open_series
from normscope.weights.scan.scan import scan
from normscope.weights.soundness.samples import ELEMENTS, PIECE, choose_pieces, sampled_table
from normscope.weights.soundness.tensor_checks import finite_part, load_sums
from tests.conftest import save_series


def write(folder, states):
    return [entry.open() for entry in open_series(save_series(folder, states)).entries]


def sizes(checkpoint, *names):
    return {name: t.numel for name, t in checkpoint.tensors.items() if not names or name in names}


def table(checkpoints, *names):
    return sampled_table(np.arange(len(checkpoints)), checkpoints, sizes(checkpoints[0], *names))


def walk(shapes, steps, dtype=torch.float32):
    generator = torch.Generator().manual_seed(2)
    state = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    for step in range(steps):
        yield step, {name: value.to(dtype) for name, value in state.items()}
        for number, name in enumerate(shapes):  # tensors move at different speeds
            state[name] = state[name] + (1 + number) * 0.01 * torch.randn(shapes[name], generator=generator)


def rows_of(states):
    return np.stack([np.concatenate([t.double().ravel() for t in s.values()]) for s in states.values()])


def distances(states):
    rows = rows_of(states)
    return np.sum((rows[:, None] - rows[None]) ** 2, axis=2)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float16, torch.float8_e5m2]
)
def test_a_small_model_is_read_whole(tmp_path, dtype):
    states = dict(walk({"a": (30, 40), "b": (7,), "empty": (0, 3)}, 5, dtype))
    found = table(write(tmp_path / "s", states))
    np.testing.assert_allclose(found.squared, distances(states), rtol=1e-9, atol=1e-9)


def test_cosines_are_means_over_the_tensors(tmp_path):
    states = dict(walk({"a": (30, 40), "b": (20, 10)}, 4))
    found = table(write(tmp_path / "s", states))
    expected = 0
    for name, numel in (("a", 1200), ("b", 200)):
        rows = rows_of({i: {name: s[name]} for i, s in states.items()})
        norms = np.linalg.norm(rows, axis=1)
        expected = expected + numel / 1400 * (rows @ rows.T) / np.outer(norms, norms)
    np.testing.assert_allclose(found.cosine, expected, rtol=1e-9)


def test_sums_give_the_same_table_of_neighbours_and_of_all_with_the_first(tmp_path):
    """Of what two checkpoints share no tensor has more than all, however it has grown."""
    states = dict(walk({"a.weight": (20, 30)}, 3))
    for step, state in states.items():
        state["grown.weight"] = 3.0**step * states[0]["a.weight"][:10]
        state["turned.weight"] = (-2.0) ** step * states[0]["a.weight"][:5]
    sampled = table(write(tmp_path / "series", states))
    with scan(tmp_path / "series", tmp_path / "run.db") as run:
        found = finite_part(load_sums(run, "", list(states))).table()
    for name in ("squared", "cosine", "shared"):
        known, wanted = getattr(found, name), getattr(sampled, name)
        assert known == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    assert found.shared[0, 1] == pytest.approx((600 + 300 - 150) / 1050, abs=0.01)


def test_a_large_model_is_estimated(tmp_path):
    states = dict(walk({"a": (1100, 700), "b": (3000,), "c": (900, 777)}, 4))
    found = table(write(tmp_path / "s", states))
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(found.squared[off], distances(states)[off], rtol=0.04)


def test_only_the_named_tensors_count(tmp_path):
    states = dict(walk({"a": (30, 40), "b": (7,)}, 3))
    found = table(write(tmp_path / "s", states), "b")
    expected = distances({i: {"b": s["b"]} for i, s in states.items()})
    np.testing.assert_allclose(found.squared, expected, rtol=1e-9)


def test_the_sample_is_small_spread_and_weighs_as_much_as_the_model(tmp_path):
    shapes = {"tiny": (5,), "a": (1000, 1000), "b": (3000,), "c": (700, 3000)}
    (checkpoint,) = write(tmp_path / "s", dict(walk(shapes, 1)))
    pieces = choose_pieces(checkpoint, sizes(checkpoint), ELEMENTS)
    read = sum(p.stop - p.start for p in pieces)
    assert 0.95 * ELEMENTS < read <= ELEMENTS + PIECE
    stands_for = sum((p.stop - p.start) * p.weight for p in pieces)
    assert stands_for == pytest.approx(sum(t.numel for t in checkpoint.tensors.values()), rel=0.05)
    assert all(0 <= p.start < p.stop <= checkpoint.tensors[p.name].numel for p in pieces)
    inside = sorted(p.start for p in pieces if p.name == "c")
    assert len(set(np.diff(inside))) == 1 and len(inside) > 30


def test_few_pieces_are_read_if_reads_are_costly(tmp_path):
    shapes = {f"t{i}": (100, 100 + i) for i in range(60)}
    path = tmp_path / "step_1.npz"
    np.savez_compressed(path, **{n: t.numpy() for n, t in next(walk(shapes, 1))[1].items()})
    (entry,) = open_series(path).entries
    checkpoint = entry.open()
    pieces = choose_pieces(checkpoint, sizes(checkpoint), 10_000)
    assert [p.name for p in pieces] == [f"t{i}" for i in range(59, 27, -1)]
    assert all(p.start == 0 and p.stop == 10_000 // 32 for p in pieces)
    for piece in pieces:
        assert piece.stop * piece.weight == pytest.approx(np.prod(shapes[piece.name]))


def test_a_scan_samples_without_torch(tmp_path):
    folder = save_series(tmp_path / "s", dict(walk({"a.weight": (30, 40)}, 5, torch.bfloat16)))
    code = (
        "import sys, normscope as ns; "
        f"run = ns.scan({str(folder)!r}, {str(tmp_path / 'r.db')!r}); "
        "assert run.artifacts('pairs'); assert 'torch' not in sys.modules, 'torch'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
