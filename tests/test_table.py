"""The column table against the libraries it feeds."""

import math

import pytest

from normscope.table import Table

TABLE = Table.from_rows(("step", "norm", "name"), [(0, 1.5, "a"), (1, math.nan, "<b>")])


def test_rows_are_what_json_can_hold():
    assert list(TABLE) == [{"step": 0, "norm": 1.5, "name": "a"}, {"step": 1, "norm": None, "name": "<b>"}]
    assert len(TABLE) == 2
    assert TABLE["step"] == [0, 1]


def test_no_rows_keep_their_columns():
    empty = Table.from_rows(("a", "b"), [])
    assert len(empty) == 0
    assert list(empty.columns) == ["a", "b"]


def test_names_are_escaped_in_notebooks():
    assert "&lt;b&gt;" in TABLE._repr_html_()
    assert "<b>" not in TABLE._repr_html_()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(library):
    pytest.importorskip(library)
    frame = getattr(TABLE, f"to_{library}")()
    assert list(frame.columns) == ["step", "norm", "name"]
    assert frame.shape == (2, 3)
