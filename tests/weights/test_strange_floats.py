"""Floats that only damaged files have pass through the checks of names and constants without a warning."""

import numpy as np
import pytest

from normscope.weights.inventory.number_series import _alibi, _alibi_bias, _retention
from normscope.weights.inventory.peeks import to_float64


def test_signalling_nan_of_bfloat16():
    assert np.isnan(to_float64(b"\x81\x7f\x80\xff", "bfloat16")).tolist() == [True, False]


@pytest.mark.parametrize("value", [np.inf, np.nan, 1.7e308])
def test_constants_of_infinite_values(value):
    assert not _alibi(np.full(8, value), 1e-6)
    assert not _alibi_bias(np.full((8, 8), value), 1e-6)
    assert not _retention(np.full(8, value), 1e-6)
