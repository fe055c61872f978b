"""The column table against the libraries it feeds."""

import math
from functools import cached_property
from importlib import import_module

import pytest

from normscope.table import Table, Tabular

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


class Messages(Tabular):
    """A result that names what a checkpoint called so."""

    table = TABLE
    messages = ("<script>alert(1)</script> grows",)


def test_sentences_are_escaped_in_notebooks():
    shown = Messages()._repr_html_()
    assert shown.startswith("<p>&lt;script&gt;")
    assert "<script>" not in shown
    assert shown.endswith(TABLE._repr_html_())
    assert list(Messages().to_pandas().columns) == list(TABLE.columns)


RESULTS = (
    "network.measuring.saturation.Saturation", "network.measuring.homogeneity.Homogeneity",
    "network.measuring.heads.Heads", "weights.audit.audit.Audit", "theory.laws.growth.GrowthFit",
    "theory.laws.groups.GroupFits", "theory.laws.compare.Comparison",
    "theory.forecasts.forecast_result.Forecast", "theory.forecasts.backtest.Backtest",
    "theory.dynamics.budget.NormBudget", "lab.training.trainer.TrainResult", "lab.sweep.sweep.SweepResult",
)  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_tabular(name):
    """One way to all of them: `.table` is a property, and pandas and polars are at hand."""
    module, _, kind = f"normscope.{name}".rpartition(".")
    result = getattr(import_module(module), kind)
    assert issubclass(result, Tabular)
    assert isinstance(result.table, property | cached_property)
    assert result.table is not Tabular.table
