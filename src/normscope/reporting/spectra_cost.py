"""What the spectra of a series cost, from the shapes of its matrices, before any is measured.

MeasuredSource on one core: the Gram matrix of [m, n] with n ≤ m and its eigenvalues do 20 to 40 · 10⁹ of the
m·n² + 8·n³ operations per second. Larger matrices are estimated from products with a block of vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from normscope.anatomy import in_scope
from normscope.run import Run, TensorRow
from normscope.weights.spectra.matrix_spectrum import EXACT_SIDE
from normscope.weights.spectrum.matrix_parts import has_matrices, number_of_parts

SPEED = 20e9  # operations per second
EACH = 2e-3  # seconds of any matrix, however small
PRODUCTS = 400  # operations per element of a matrix that is estimated
CHEAP = 20.0  # seconds: what a page may take longer without being asked


def spectra_seconds(run: Run) -> float:
    """An estimate of the seconds of one core that the missing spectra of the weights take."""
    alive = [tensor for tensor in run.tensors() if tensor.tied_to is None]
    chosen = in_scope(alive, "body", lambda tensor: (tensor.role, tensor.shape))
    matrices = [tensor for tensor in chosen if has_matrices(tensor)]
    missing = len(run.checkpoints()) * sum(map(number_of_parts, matrices)) - _recorded(run)
    every = sum(map(number_of_parts, matrices))
    each = sum(map(_seconds, matrices))
    return each * missing / every if every and missing > 0 else 0.0


def _recorded(run: Run) -> int:
    ((count,),) = run.query("SELECT count(*) FROM spectrum WHERE kind = 'weights'")
    return int(count)


def _seconds(tensor: TensorRow) -> float:
    parts = number_of_parts(tensor)
    short, long = _sides(tensor.shape[1:] if parts > 1 else tensor.shape)
    exact = long * short**2 + 8 * short**3
    work = exact if short <= EXACT_SIDE else PRODUCTS * short * long
    return parts * (EACH + work / SPEED)


def _sides(shape: Sequence[int]) -> tuple[int, int]:
    """The sides of the matrix that a tensor is, the shorter one first."""
    first, rest = shape[0], math.prod(shape[1:])
    return min(first, rest), max(first, rest)
