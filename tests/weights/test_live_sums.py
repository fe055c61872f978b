"""Sums of many tensors at once compared with those of one tensor at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from normscope.weights.sums import live_sums
from normscope.weights.sums.statistics import torch_sums


def tensors(dtype: torch.dtype, sizes: list[int]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(len(sizes))
    return [torch.randn(size, generator=generator).to(dtype) for size in sizes]


def slow(theta: torch.Tensor, previous: torch.Tensor, initial: torch.Tensor) -> list[float]:
    raw = [bytes(t.view(torch.uint8).numpy()) for t in (theta, previous, initial)]
    return list(torch_sums(str(theta.dtype).removeprefix("torch."), *raw))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("piece", [1 << 20, 1000])
def test_against_one_tensor_at_a_time(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, piece: int
) -> None:
    monkeypatch.setattr(live_sums, "PIECE", piece)
    sides = [tensors(dtype, [0, 1, 17, 4096, 70_001]) for _ in range(3)]
    sides[0][2][3] = float("nan")
    found = live_sums.sums_of(*sides)
    for i, item in enumerate(zip(*sides, strict=True)):
        np.testing.assert_allclose(found[i], slow(*item), rtol=1e-7, atol=1e-9 * len(item[0]) + 1e-12)


def test_the_torch_way_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = [tensors(torch.bfloat16, [5, 3000]) for _ in range(3)]
    sides[1][1][7] = float("inf")
    native = live_sums.sums_of(*sides)
    monkeypatch.setattr(live_sums, "_kernel", None)
    np.testing.assert_allclose(live_sums.sums_of(*sides), native, rtol=1e-7, atol=1e-5)


def test_strides_mixed_dtypes_sparse_and_complex() -> None:
    x = torch.randn(6, 4)
    sparse = (
        torch.zeros(6, 4).index_put((torch.tensor([1]), torch.tensor([2])), torch.tensor(3.0)).to_sparse()
    )
    rotated = torch.view_as_complex(torch.tensor([[3.0, 4.0]]))
    found = live_sums.sums_of([x.t(), x.double(), sparse, rotated], None, [x.t(), x, x, rotated])
    square = float(x.double().pow(2).sum())
    assert found[0, [live_sums.SUMSQ, live_sums.INIT]] == pytest.approx([square, square], rel=1e-7)
    assert found[1, live_sums.INIT] == pytest.approx(square, rel=1e-7)
    assert found[2, [live_sums.SUMSQ, live_sums.INIT]] == pytest.approx([9.0, 3 * float(x[1, 2])])
    assert found[3, live_sums.SUMSQ] == 25.0


def test_sums_add_up_over_pieces_of_a_tensor() -> None:
    theta, previous = tensors(torch.float32, [10_000])[0], tensors(torch.float32, [10_000, 1])[0]
    whole = live_sums.sums_of([theta], [previous])
    parts = live_sums.sums_of(list(theta.split(999)), list(previous.split(999)))
    np.testing.assert_allclose(parts.sum(0)[[0, 1, 2]], whole[0, [0, 1, 2]], rtol=1e-7)


def test_copies_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_sums, "PIECE", 100)
    sources = [*tensors(torch.bfloat16, [0, 3, 5001]), torch.randn(7, 9).t()]
    targets = [torch.empty_like(source) for source in sources]
    assert live_sums.copy_into(live_sums.KeptTensors(targets), sources)
    assert all(map(torch.equal, targets, sources))


def test_tensors_that_move_or_become_others_are_summed_as_they_are():
    """What is kept from one call to the next must never be read when it no longer holds."""
    parameter, ours = torch.nn.Parameter(torch.randn(50)), torch.randn(50)
    kept = live_sums.KeptTensors([ours])
    single, wide = torch.randn(50), torch.randn(50).double()
    states = (single, torch.randn(50).bfloat16(), torch.randn(70), torch.randn(6, 9).t(), wide)
    for state in (*states, *reversed(states)):
        parameter.data = state
        found = live_sums.sums_of([parameter])
        assert found[0, live_sums.SUMSQ] == pytest.approx(float(state.double().pow(2).sum()), rel=1e-6)
        if state.shape == ours.shape:
            found = live_sums.sums_of([parameter], kept, kept)
            expected = float((state.double() - ours.double()).pow(2).sum())
            assert found[0, live_sums.DELTA] == pytest.approx(expected, rel=1e-6)
        fits = live_sums.memory_format(state) == live_sums.memory_format(ours)
        before = ours.clone()
        assert live_sums.copy_into(kept, [parameter]) == fits
        assert torch.equal(ours, state if fits else before)
    expected = [float(state.double().pow(2).sum()) for state in states]
    found = live_sums.sums_of([*states])
    np.testing.assert_allclose(found[:, live_sums.SUMSQ], expected, rtol=1e-6)


@pytest.mark.parametrize("compiled", [True, False])
def test_gradients_are_summed_with_their_parameters(compiled: bool, monkeypatch: pytest.MonkeyPatch):
    if not compiled:
        monkeypatch.setattr(live_sums, "_kernel", None)
    parameters = [torch.nn.Parameter(each) for each in tensors(torch.float32, [3, 0, 700, 5])]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    for without in (None, 2):
        if without is not None:
            parameters[without].grad = None
        found, present = live_sums.gradient_sums_of(list(parameters))
        assert present is None if without is None else present.tolist() == [True, True, False, True]
        for row, parameter in zip(found, parameters, strict=True):
            theta = parameter.detach().double()
            gradient = torch.zeros_like(theta) if parameter.grad is None else parameter.grad.double()
            assert row[live_sums.SUMSQ] == pytest.approx(float(gradient.pow(2).sum()), rel=1e-6)
            assert row[live_sums.INIT] == pytest.approx(float((gradient * theta).sum()), rel=1e-5, abs=1e-6)


class Marked(torch.Tensor):
    """A subclass, which need not be where and what its base class says."""


def test_tensors_are_described_as_python_describes_them() -> None:
    """The exchange that PyTorch offers in C, against questions in Python's way, on every kind of tensor."""
    kernel = pytest.importorskip("normscope.weights.sums._kernel")
    x = torch.randn(6, 4)
    zoo = [
        *(x.to(dtype) for dtype in (*live_sums.DTYPES, torch.int32, torch.bool, torch.complex64)),
        x.t(), x[1:], x[:, 1:], x[2:3], x[:, 2:3], x[0, 0], x.expand(2, 6, 4), x[:0], torch.empty(0, 3),
        torch.empty(3, 1, 0), x.to(memory_format=torch.contiguous_format), torch.nn.Parameter(x),
        torch.nn.Parameter(x.t()), x.to_sparse(), x.to("meta"), torch.ones(()), x.as_subclass(Marked),
    ]  # fmt: skip
    kernel.exchange((int, float))  # types that have none
    try:
        asked = live_sums.KeptTensors(zoo).places
    finally:
        kernel.exchange((torch.Tensor, torch.nn.Parameter))
    described = live_sums.KeptTensors(zoo).places
    empty = asked[:, 1] == 0
    assert described[:, :2].tolist() == asked[:, :2].tolist()
    assert described[~empty].tolist() == asked[~empty].tolist()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_ends_of_arrays_are_summed_in_float64(dtype: torch.dtype) -> None:
    """Fewer elements than the shortest run of any instruction set: 128 of float32, 512 of bfloat16."""
    for number in (1, 2, 7, 8, 9, 31, 33, 100, 127 if dtype == torch.float32 else 511):
        sides = [torch.randn(number, dtype=torch.float64).to(dtype) for _ in range(3)]
        theta, previous, initial = (side.double().numpy() for side in sides)
        found = live_sums.sums_of(*([side] for side in sides))[0]
        delta = theta - previous
        expected = [theta @ theta, previous @ delta, delta @ delta, theta @ initial, abs(theta).max(), 0]
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


def test_values_that_are_not_finite_are_counted_in_ends_of_arrays() -> None:
    theta, previous = torch.ones(20), torch.zeros(20)
    theta[3], theta[19], previous[5] = float("nan"), float("-inf"), float("inf")
    found = live_sums.sums_of([theta], [previous])[0]
    assert found.tolist() == [18.0, 0.0, 17.0, 0.0, 1.0, 2.0]
