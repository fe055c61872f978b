"""The reader's view of heads: what the page gets, undecided heads, and heads that changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import normscope as ns
from normscope.run import Run
from normscope.views.figures.network.head_map import TYPES, types_in_words
from normscope.views.figures.network.head_reader import packed
from normscope.views.reports.report import report, run_page

from .networks import ATTENDS, head_rows, write_many_heads
from .pages import figures
from .test_networks import unpacked


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A report of 24 layers with 16 heads each."""
    folder = tmp_path_factory.mktemp("many")
    return report(write_many_heads(folder / "many.db"), folder / "many.html")


def reader_of(path):
    return figures(path)["s0-head-reader"]["reader"]


def one_head(tmp_path, document, **changes):
    rows = [replace(row, **changes) for row in head_rows(np.random.default_rng(0), 5, layers=1, heads=1)]
    with Run.create(tmp_path / "one.db") as run, run.transaction():
        run.write(rows)
        run.set_artifact("attention", rows[0].example_key, document)
    reader = reader_of(report(tmp_path / "one.db", tmp_path / "one.html"))
    (head,) = reader["heads"]
    return reader, head


def test_weights_come_back_within_half_a_step_and_nan_stays_unknown():
    weights = np.random.default_rng(0).dirichlet(np.ones(7), size=5)
    assert np.abs(unpacked(packed(weights), 7) - weights).max() <= 0.5 / 254
    assert np.array_equal(unpacked(packed([[1, 0], [0.5, 0.5]]), 2), [[1, 0], [0.5, 0.5]])
    assert np.array_equal(np.isnan(unpacked(packed([[None, 1], [float("nan"), 0]]), 2)), [[1, 0], [1, 0]])


def test_hundreds_of_heads_fit_into_a_page(many):
    reader = reader_of(many)
    assert len(reader["heads"]) == 384 and all(head["soft"] for head in reader["heads"])
    assert reader["columns"] == 16 and len(reader["rows"]) == 24
    assert len(reader["sentences"]) == 1
    assert sum(len(head[kind]) for head in reader["heads"] for kind in ("soft", "saturated")) < 700_000
    assert many.stat().st_size < 9_000_000


def test_every_head_is_described(many):
    head = next(head for head in reader_of(many)["heads"] if head["type"] == "argmax")
    facts = dict(head["facts"])
    assert facts["converged"] == "yes" and facts["settles at c ="] == "32"
    assert head["attends"][0] == ["attends to", "previous"]
    soft = dict(head["attends"])["soft"]
    assert soft == "previous 0.71 (0.69 to 0.73), next 0.10 (0.08 to 0.12), first 0.09 (0.07 to 0.11)"
    assert "same token" not in soft and len(ATTENDS["soft"]) == 4


def test_keys_of_cross_attention_have_their_own_names(tmp_path):
    weights = [[0.2, 0.3, 0.5], [1, 0, 0]]
    document = {
        "tokens": ["<s>", "Ġle"],
        "key_tokens": ["the", "cat", "."],
        "soft": weights,
        "saturated": weights,
    }
    reader, head = one_head(tmp_path, document)
    assert reader["sentences"][head["sentence"]] == {"queries": ["<s>", "·le"], "keys": ["the", "cat", "."]}


def test_positions_without_a_token_are_numbered_and_not_named_after_another(tmp_path):
    weights = [[0.2, 0.3, 0.5], [1, 0, 0]]
    reader, _ = one_head(tmp_path, {"tokens": ["a", "b"], "soft": weights, "saturated": weights})
    assert reader["sentences"][0]["keys"] == ["a", "b", "#2"]


def test_heads_of_a_layer_with_several_modules_have_names_of_their_own(tmp_path):
    paths = [f"{side}.layers.0.{name}" for side, name in (("enc", "self"), ("dec", "self"), ("dec", "cross"))]
    (row,) = head_rows(np.random.default_rng(0), 5, layers=1, heads=1)
    rows = [replace(row, module=path) for path in paths]
    with Run.create(tmp_path / "a.db") as run, run.transaction():
        run.write(rows)
        for each in rows:
            run.set_artifact(
                "attention", each.example_key, {"tokens": ["a"], "soft": [[1]], "saturated": [[1]]}
            )
    reader = reader_of(report(tmp_path / "a.db", tmp_path / "a.html"))
    assert sorted(reader["rows"]) == ["dec cross", "dec self", "enc self"]
    assert {head["says"] for head in reader["heads"]} == {f"{path} head 0, {row.type}" for path in paths}


def test_a_type_of_a_later_release_is_shown_under_its_name(tmp_path):
    _, head = one_head(tmp_path, {"tokens": ["a"], "soft": [[1]], "saturated": [[1]]}, type="<b>")
    assert head["says"] == "layer 1 head 0, <b>"


def test_only_the_maps_of_the_last_step_are_read(tmp_path, monkeypatch):
    path = write_many_heads(tmp_path / "run.db", layers=2, heads=2)
    with Run(path, write=True) as run, run.transaction():
        run.set_artifact("attention", "0/model.layers.0.self_attn/0", {"tokens": [], "soft": [[]]})
    monkeypatch.setattr(Run, "artifacts", lambda self, kind: {} if kind != "attention" else pytest.fail(kind))
    with Run(path) as run:
        assert run_page(run)


# -- undecided -------------------------------------------------------------------------------


def test_undecided_heads_are_counted_and_have_a_colour_of_their_own(many):
    drawn = figures(many)
    trace = next(t for t in drawn["s0-heads"]["traces"] if t["set"] == "type")
    assert trace["colorbar"]["ticktext"] == list(TYPES) and "undecided" in TYPES
    colours = [colour for _, colour in trace["colorscale"][::2]]
    assert len(set(colours)) == 4 and "@undecided" in colours
    bands = np.array([place for place, _ in trace["colorscale"]]).reshape(4, 2)
    for code in range(4):  # each code is in the middle of its own band
        place = (code - trace["zmin"]) / (trace["zmax"] - trace["zmin"])
        assert place == pytest.approx(bands[code].mean())
    codes = np.ravel(trace["z"])
    reader = dict(reader_of(many)["types"])
    assert reader["undecided"] == np.sum(codes == TYPES.index("undecided")) > 0
    assert sum(reader.values()) == 384


def test_the_title_counts_undecided_heads_only_if_there_are_any():
    rows = list(head_rows(np.random.default_rng(0), 0, 1, 4))
    named = [
        replace(row, type=kind) for row, kind in zip(rows, ("argmax", "mean", "mean", "argmax"), strict=True)
    ]
    assert types_in_words(named) == "2 argmax heads, 2 mean, 0 mixed"
    unsure = [replace(named[0], type="undecided"), *named[1:]]
    assert types_in_words(unsure) == "1 argmax head, 2 mean, 0 mixed, 1 undecided"


def test_a_figure_outside_the_report_has_them_too():
    numbers = {"positions_deviation": 0.0, "split": 0.0, "share": 0.2, "effective": 3.1, "first": 0.1}
    measured = {"positions": 1.0, "largest": 0.6, "distance": 2.0, **numbers}
    heads = [ns.Head("h.0", 1, i, kind, 0.1, **measured) for i, kind in enumerate(("argmax", "undecided"))]
    figure = ns.plot(ns.Heads(tuple(heads)))
    assert figure.layout.title.text.startswith("1 argmax head, 0 mean, 0 mixed, 1 undecided")
    assert figure.data[0].z[0][1] == TYPES.index("undecided")
    assert len({colour for _, colour in figure.data[0].colorscale}) == 4


# -- heads that changed ------------------------------------------------------------------------


def test_the_picture_and_the_table_agree_about_the_heads_that_changed(many, tmp_path):
    drawn = figures(many)
    (before, dots), (after, _) = (drawn[f"s0-heads-{which}"]["traces"] for which in ("first", "last"))
    first, last = (np.array(trace["z"]) for trace in (before, after))
    unsure = TYPES.index("undecided")
    moved = (first != last) & (first != unsure) & (last != unsure)
    assert {(y, x) for x, y in zip(dots["x"], dots["y"], strict=True)} == set(
        zip(*np.nonzero(moved), strict=True)
    )
    counts = np.array(drawn["s0-head-flow"]["traces"][0]["z"], dtype=float)
    assert np.nansum(counts) == 384
    with Run(write_many_heads(tmp_path / "many.db")) as run:
        (section,) = [s for s in run_page(run).stages[0].sections if s.key == "heads"]
    table = next(t for t in section.tables if t.key == "head-changes")
    listed = {(row[0] - 1, row[1]) for row in table.rows if row[3] != row[4] and "undecided" not in row[3:5]}
    assert listed == set(zip(*np.nonzero(moved), strict=True))
    assert any(f"{moved.sum()} of" in sentence for sentence in section.sentences)


def test_a_single_step_has_no_changes(tmp_path):
    path = write_many_heads(tmp_path / "one.db", layers=2, heads=2, steps=(5,))
    drawn = figures(report(path, tmp_path / "one.html"))
    assert not {"s0-heads-first", "s0-heads-last", "s0-head-flow"} & set(drawn)
