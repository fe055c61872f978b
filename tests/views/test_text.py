from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from normscope.views.page.formatting import (
    evenly_spaced,
    formula,
    json_numbers,
    label,
    number,
    percent,
    plural,
    points_to_draw,
    size,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (4166.2, "4,166"), (470.6, "470.6"), (0.0123456, "0.01235"), (0.0, "0"), (-3.5, "−3.500"),
        (1.5e-7, "1.5·10⁻⁷"), (2.5e9, "2.5·10⁹"), (float("nan"), "–"), (None, "–"), (math.inf, "∞"),
    ],
)  # fmt: skip
def test_numbers_read_well(value, shown):
    assert number(value) == shown


@given(st.floats(min_value=1e-4, max_value=9e6))
def test_numbers_keep_four_digits(value):
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=6e-4)


def test_small_words():
    assert (percent(0.002), percent(0.918), percent(0.0)) == ("under 1 %", "92 %", "0 %")
    assert (plural(1, "layer"), plural(1200, "layer")) == ("1 layer", "1,200 layers")
    assert (size(90_432), size(7.24e9), size(12)) == ("90.4 k", "7.24 B", "12")
    assert formula("a·t^¼ + b") == "a·∜t + b"


@given(st.text(max_size=200))
def test_labels_carry_no_markup_and_no_template(text):
    shown = label(text)
    assert not set("<>{}") & set(shown)
    assert shown.isprintable() and len(shown) <= 61 * 10


def test_values_are_json_numbers():
    assert json_numbers([1 / 3, np.nan, np.inf, 2]) == [0.333333, None, None, 2.0]


@given(st.integers(1, 100_000), st.integers(2, 500))
def test_drawn_points_are_few_ordered_and_have_both_ends(n, limit):
    kept = points_to_draw(n, limit)
    assert len(kept) <= max(limit, 1) and kept[0] == 0 and kept[-1] == n - 1
    assert (np.diff(kept) > 0).all()
    groups = evenly_spaced(n, limit)
    assert len(groups) <= limit and groups[-1] == n - 1
