"""What every result can do besides being drawn: compare, hash, travel between processes, show itself."""

import copy
import dataclasses
import pickle
from html.parser import HTMLParser

import pytest

import normscope as ns
from normscope.table import SHOWN_ROWS

from . import results as make

NAMES = (
    *("series", "series set", "fit", "groups", "forecast", "backtest", "advice", "comparison"),
    *("budget", "budgets", "saturation", "heads", "similarity", "both", "ablations", "task"),
    *("homogeneity", "look-ahead", "automaton", "automata", "audit", "train", "sweep", "paper"),
    "replication",
)
READABLE = 1200  # characters of a repr: a dozen lines of a terminal


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    papers = {
        "paper": ns.paper("2010.09697", offline=True),
        "replication": ns.replicate("sqrt-growth", output=folder / "replication"),
    }
    return make.of_theory(folder) | make.of_network() | make.of_lab(folder) | papers


class Balanced(HTMLParser):
    """Fails at an end tag that closes nothing, and knows what is still open."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_every_kind_of_result_is_tried():
    kinds = {name for name in ns.__all__ if isinstance(getattr(ns, name), type)}
    tabular = {name for name in kinds if issubclass(getattr(ns, name), ns.Tabular)} - {"Tabular"}
    assert len(tabular) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_results_compare_and_hash_by_value(name, results):
    result = results[name]
    for other in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert other == result
        assert hash(other) == hash(result)
    assert result != 3
    assert list(pickle.loads(pickle.dumps(result)).table) == list(result.table)


@pytest.mark.parametrize("name", NAMES)
def test_results_show_themselves(name, results):
    result = results[name]
    assert repr(result).startswith(type(result).__name__)
    assert len(repr(result)) < READABLE
    page = Balanced()
    page.feed(result._repr_html_())
    assert page.open == []
    assert len(result.to_pandas()) == len(result.to_polars()) == len(result.table)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(result, dataclasses.fields(result)[0].name, 1)


def test_names_are_escaped_in_notebooks():
    series = ns.Series("<script>alert(1)</script>", [0, 1, 2], [1, 2, 3], unit="<b>")
    for shown in (
        series._repr_html_(),
        ns.series(series)._repr_html_(),
        ns.compare(series, series)._repr_html_(),
    ):
        assert "<script" not in shown and "<b>" not in shown


def test_a_long_table_shows_both_ends():
    series = ns.Series("long", range(100_000), range(100_000))
    shown = series._repr_html_()
    assert shown.count("<tr>") == 1 + SHOWN_ROWS + 1
    assert "<td>0</td>" in shown and "<td>99999</td>" in shown
    assert f"{100_000 - SHOWN_ROWS:,} more rows" in shown
    assert repr(series) == "Series('long', 100000 points from step 0 to 99999)"


def test_configs_and_values_can_be_hashed_and_compared():
    batch = ns.Batch(({"x": [1]},))
    for value in (ns.ScanConfig(skip=["a"], steps=[1]), ns.SweepConfig(cells=[{"lr": 1}]), batch):
        assert hash(value) == hash(value) and value == value and value != 3
    table = ns.Table({"a": [1, 2]})
    assert table == ns.Table({"a": [1, 2]}) and hash(table) == hash(ns.Table({"a": [1, 2]}))
    assert repr(table) == "Table(2 rows: a)"


def test_a_table_has_columns_of_one_length():
    with pytest.raises(ns.NormscopeError, match=r"one length; got \{'a': 1, 'b': 2\}"):
        ns.Table({"a": [1], "b": [1, 2]})
    with pytest.raises(KeyError, match="no column 'b'; it has a"):
        ns.Table({"a": [1]})["b"]
