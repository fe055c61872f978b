"""σ₁ by two products a record: against an SVD, and against matrices that are made to mislead it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from numpy.typing import NDArray

from normscope.live.spectral.spectral_estimate import MatrixEstimate, SpectralEstimate

Matrix = NDArray[np.float64]


def look(estimate: MatrixEstimate, matrix: Matrix, step: int) -> SpectralEstimate:
    """One record of a matrix; counts the products."""
    block: Matrix | None = estimate.begin(step)
    look.products = 0
    while block is not None:
        left = estimate.left(block @ matrix.T)
        block = estimate.finish_round(left @ matrix, float(np.sum(matrix**2)))
        look.products += 2
    return estimate.found


def estimates(matrices: Iterable[Matrix]) -> list[tuple[SpectralEstimate, float]]:
    """The estimate and the truth at every record."""
    found = []
    estimate: MatrixEstimate | None = None
    for step, matrix in enumerate(matrices):
        estimate = estimate or MatrixEstimate(*matrix.shape, seed=(0, 0), rounding=1e-12)
        found.append((look(estimate, matrix, step), float(np.linalg.svd(matrix, compute_uv=False)[0])))
    return found


def random(*shape: int, seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).standard_normal(shape)


def direction(rows: int, columns: int, seed: int) -> Matrix:
    a, b = random(rows, seed=seed), random(columns, seed=seed + 1)
    return np.outer(a / np.linalg.norm(a), b / np.linalg.norm(b))


def right(found: SpectralEstimate, truth: float) -> bool:
    """Whether the truth is within the error; an estimate is never more than σ₁."""
    return found.value - 1e-9 * truth <= truth <= found.value + found.error + 1e-12


@pytest.mark.parametrize("shape", [(40, 40), (30, 90), (90, 30), (2, 50), (50, 2), (3, 3), (300, 200)])
def test_the_first_record_is_exact(shape: tuple[int, int]) -> None:
    ((found, truth),) = estimates([random(*shape)])
    assert found.converged
    assert found.value == pytest.approx(truth, rel=1e-5)
    assert found.norm == pytest.approx(np.linalg.norm(random(*shape)))


def test_hard_matrices() -> None:
    left = np.linalg.qr(random(60, 60))[0]
    repeated = left * np.array([5.0, 5.0, 5.0, *[1.0] * 57])
    close = left * (1 - 1e-7 * np.arange(60))
    for matrix in (
        repeated,
        close,
        left,
        direction(60, 20, 3),
        1e-20 * random(40, 50),
        1e20 * random(40, 50),
    ):
        ((found, truth),) = estimates([matrix])
        assert found.value == pytest.approx(truth, rel=1e-5)
        assert right(found, truth)
    ((found, _),) = estimates([np.zeros((5, 7))])
    assert found == SpectralEstimate(0.0, 0.0, 0.0, 0.0, True)


def test_a_matrix_that_was_zero_is_looked_at_anew() -> None:
    *_, (found, truth) = estimates([np.zeros((50, 80)), random(50, 80)])
    assert found.converged
    assert found.value == pytest.approx(truth, rel=1e-5)


def test_afterwards_two_products_a_record() -> None:
    estimate, matrix = MatrixEstimate(200, 300, seed=(0, 0)), random(200, 300)
    look(estimate, matrix, 0)
    assert 10 < look.products <= 48
    for step in range(1, 10):
        matrix = matrix + 2e-4 * random(200, 300, seed=step)
        found = look(estimate, matrix, step)
        assert look.products == 2
        assert right(found, np.linalg.svd(matrix, compute_uv=False)[0])


def test_followed_through_a_training() -> None:
    """Random steps and a direction that grows: errors say how far off it is, and stay under one per cent."""
    matrix, kept = random(120, 200) / 14, []
    for step in range(60):
        matrix = matrix + 0.002 * random(120, 200, seed=step) + 0.02 * direction(120, 200, 5)
        kept.append(matrix)
    for found, truth in estimates(kept):
        assert right(found, truth)
        assert found.value == pytest.approx(truth, rel=1e-5 if found.converged else 1e-2)


def switched(strength: float, energy: Callable[[Matrix], Matrix]) -> list[Matrix]:
    """One top direction until the 5th record, and then abruptly another, orthogonal to all vectors before."""
    noise = random(150, 220, seed=9) / 25
    before = noise + 2.5 * direction(150, 220, 1)
    _, _, vectors = np.linalg.svd(before)
    hidden = np.outer(direction(150, 220, 6)[:, 0], vectors[-1])
    hidden *= strength / np.linalg.norm(hidden)
    return [before] * 5 + [energy(noise) + hidden] * 12


@pytest.mark.parametrize("strength", [3.0, 2.0, 6.0])
@pytest.mark.parametrize("kept", ["grows", "same norm", "both"])
def test_a_top_direction_that_switches_abruptly(strength: float, kept: str) -> None:
    """The value is right within a few records, or says how wrong it may be."""

    def energy(noise: Matrix) -> Matrix:
        if kept == "grows":
            return noise
        if kept == "both":
            return noise + 2.5 * direction(150, 220, 1)
        lost = max(0.1, 1 - (strength**2 - 2.5**2) / np.sum(noise**2)) ** 0.5
        return noise * lost

    found = estimates(switched(strength, energy))
    for record, (estimate, truth) in enumerate(found):
        if not 5 <= record < 9:
            assert estimate.value == pytest.approx(truth, rel=1e-3), record
            assert right(estimate, truth), record
        else:  # never silently wrong
            assert right(estimate, truth) or not estimate.converged, record


def test_a_direction_that_grows_while_all_else_shrinks_as_much() -> None:
    """‖W‖ says nothing of it: the random part of the last vector finds it within a few records."""
    noise = random(150, 220, seed=9) / 25
    before = noise + 2.5 * direction(150, 220, 1)
    vectors = np.linalg.svd(before)[2]
    hidden = np.outer(direction(150, 220, 6)[:, 0], vectors[-1])
    hidden *= 4.0 / np.linalg.norm(hidden)
    rest = (np.sum(before**2) - 16.0 - 2.5**2) / np.sum(noise**2)
    after = rest**0.5 * noise + 2.5 * direction(150, 220, 1) + hidden
    found = estimates([before] * 5 + [after] * 12)
    assert all(estimate.value == pytest.approx(truth, rel=1e-3) for estimate, truth in found[9:])


def test_scaling_scales_and_rotations_change_nothing() -> None:
    matrix = random(50, 80)
    rotated = np.linalg.qr(random(50, 50, seed=1))[0] @ matrix @ np.linalg.qr(random(80, 80, seed=2))[0]
    (first, _), (turned, _), (scaled, _) = (estimates([each])[0] for each in (matrix, rotated, 1e4 * matrix))
    assert turned.value == pytest.approx(first.value, rel=1e-6)
    assert scaled.value == pytest.approx(1e4 * first.value, rel=1e-6)


def test_the_same_numbers_again() -> None:
    kept = [random(60, 40) + 0.1 * random(60, 40, seed=step) for step in range(6)]
    assert estimates(kept) == estimates(kept)
