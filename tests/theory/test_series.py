import numpy as np
import pytest

from normscope.errors import SeriesError, UsageError
from normscope.theory.measures.time_series import Series, clean_series, read_csv, reference


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


def test_csv_takes_norm_or_the_first_other_column_or_the_named_one(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("loss,step,norm\n9,0,1\n8,10,2\n7,20,\n")
    assert read_csv(path).values[:2].tolist() == [1, 2] and np.isnan(read_csv(path).values[2])
    assert read_csv(path, "loss").values.tolist() == [9, 8, 7]
    path.write_text("step,rms\n0,1\n\n5,2\n")
    assert read_csv(path).unit == "rms" and read_csv(path).steps.tolist() == [0, 5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "columns step and norm"),
        ("step,norm\n1,x\n", "row 2"),
        ("step,norm\n1\n", "row 2"),
        ("step,norm\nnan,1\n", "not a finite number"),
        ("step,norm\n1e300,1\n", "2\\^53"),
    ],
)
def test_bad_csv_is_one_sentence(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(SeriesError, match=message):
        read_csv(path)


def test_missing_column_missing_file_and_binary_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("step,norm\n1,2\n")
    with pytest.raises(UsageError, match="it has step, norm"):
        read_csv(path, "loss")
    with pytest.raises(UsageError, match="no file"):
        read_csv(tmp_path / "none.csv")
    path.write_bytes(b"\xff\xfe\x00\x80" * 10)
    with pytest.raises(SeriesError, match="cannot read"):
        read_csv(path)


def test_lengths_and_shapes_are_checked():
    with pytest.raises(SeriesError, match="2 steps but 3 values"):
        Series("s", np.arange(2), np.ones(3))
    with pytest.raises(SeriesError, match="shape"):
        Series("s", np.arange(2), np.ones((2, 1)))
    with pytest.raises(SeriesError, match="expected numbers"):
        Series("s", np.arange(2), ["a", "b"])
