from unittest import mock

import numpy as np
import pytest

from normscope.errors import SeriesError, UsageError
from normscope.theory.measures.time_series import Series, clean_series, reference


def test_reference_series_are_the_published_points():
    norm, cosine = reference("t5-base"), reference("t5-base-cosine")
    assert (len(norm), norm.steps[0], norm.steps[-1]) == (104, 0, 524288)
    assert (norm.values[0], norm.values[-1]) == pytest.approx((470.60751, 4166.2061))
    assert len(cosine) == 103 and cosine.values[0] == pytest.approx(0.79943526)


def test_unknown_reference_names_the_known_ones():
    with pytest.raises(UsageError, match="t5-base"):
        reference("t6")


def test_cleaning_sorts_drops_and_keeps_the_last_repeat():
    raw = Series("s", np.array([3, 1, 2, 2, 4]), np.array([3.0, 1.0, 2.0, 2.5, np.nan]))
    cleaned = clean_series(raw)
    assert cleaned.series.steps.tolist() == [1, 2, 3]
    assert cleaned.series.values.tolist() == [1.0, 2.5, 3.0]
    assert len(cleaned.notes) == 3


def test_cleaning_a_clean_series_changes_nothing():
    series = reference("t5-base")
    cleaned = clean_series(series)
    assert cleaned.notes == () and cleaned.series.values is series.values


def test_thinning_keeps_measured_points_and_both_ends():
    steps = np.arange(10**6)
    thinned = clean_series(Series("s", steps, np.sqrt(steps))).series
    assert len(thinned) <= 2000
    assert (thinned.steps[0], thinned.steps[-1]) == (0, 10**6 - 1)
    np.testing.assert_array_equal(thinned.values, np.sqrt(thinned.steps))


def test_lengths_and_shapes_are_checked():
    with pytest.raises(SeriesError, match="2 steps but 3 values"):
        Series("s", np.arange(2), np.ones(3))
    with pytest.raises(SeriesError, match="shape"):
        Series("s", np.arange(2), np.ones((2, 1)))
    with pytest.raises(SeriesError, match="expected numbers"):
        Series("s", np.arange(2), ["a", "b"])


def test_a_series_equals_only_a_series_of_the_same_points():
    one = Series("s", [1, 2], [3, np.nan], unit="norm", scope="body")
    assert one == Series("s", [1, 2], [3, np.nan], unit="norm", scope="body")
    others = [("t", [1, 2], [3, np.nan]), ("s", [1, 3], [3, np.nan]), ("s", [1, 2], [3, 4]), ("s", [1], [3])]
    assert all(one != Series(*other, unit="norm", scope="body") for other in others)
    assert one != Series("s", [1, 2], [3, np.nan], unit="norm", scope="all")
    for other in (None, 3, "s", ([1, 2], [3, np.nan])):
        assert (one == other) is False and (one != other) is True
    assert one == mock.ANY  # another class may know better


def test_notes_are_carried_and_do_not_make_series_different():
    plain, noted = Series("s", [1, 2], [3, 4]), Series("s", [1, 2], [3, 4], notes=["step column: 'Step'"])
    assert plain == noted and hash(plain) == hash(noted) and repr(plain) == repr(noted)
    assert noted.messages == ("step column: 'Step'",) and clean_series(noted).series.notes == noted.notes
    with pytest.raises(UsageError, match="notes must be"):
        Series("s", [1], [2], notes=[3])
