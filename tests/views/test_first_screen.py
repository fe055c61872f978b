"""The first screen says what is known, and tries in vain to be made to lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import normscope as ns
from normscope.cli.fit import _group_row
from normscope.remarks import Finding
from normscope.run import Run
from normscope.table import Table
from normscope.theory.answer import highlights
from normscope.theory.laws.fit_wording import Told, _exponent
from normscope.theory.laws.laws import EXPONENTS
from normscope.theory.measures.measures import group
from normscope.theory.shown_forecast import forecast_jump
from normscope.views.figures.exponents import section_parts
from normscope.views.figures.forecast import forecast_figure
from normscope.views.figures.lines import uneven_note
from normscope.views.reports.first_screen import scope_sentence, soundness
from normscope.views.reports.report import run_page
from normscope.views.reports.summary import facts


@pytest.fixture(scope="module")
def t5():
    return ns.series("t5-base")[0]


@pytest.fixture(scope="module")
def fit():
    return ns.fit_growth("t5-base")


@pytest.fixture(scope="module")
def ahead():
    return ns.forecast("t5-base", 900_000)


def tile(series, fit, label):
    return next(fact for fact in facts(highlights(series, fit)) if fact.label.startswith(label))


def test_a_known_exponent_is_a_number(t5, fit):
    assert tile(t5, fit, "Free exponent").value == f"{fit.exponent.value:.3f}"


@pytest.mark.parametrize(
    ("interval", "word"),
    [
        (ns.Interval(0.4, 0.1, 0.9), "wider"),
        (ns.Interval(0.5, 0.25, 0.75), "wider"),  # as wide as the value
        (ns.Interval(4.0, 3.0, EXPONENTS[1]), "end of the range"),
        (ns.Interval(0.012, EXPONENTS[0], 0.02), "end of the range"),
    ],
)
def test_an_exponent_that_is_not_known_is_said_in_words(t5, fit, interval, word):
    shown = tile(t5, replace(fit, exponent=interval), "Free exponent")
    assert shown.value == "not known" and word in shown.note


def test_the_sentence_and_the_tile_agree_about_a_wide_interval():
    told = Told("x", {}, {}, None, ns.Interval(0.4, 0.1, 0.9), "", None)
    assert _exponent(told).startswith("The free exponent is not known")
    told = replace(told, exponent=ns.Interval(0.5, 0.45, 0.55))
    assert _exponent(told).startswith("Free exponent p = 0.500")


def test_groups_with_a_wide_interval_have_no_exponent_on_page_and_command_line(run_path):
    found = ns.fit_groups(run_path)
    first, *rest = found.groups
    wide = replace(found, groups=(replace(first, exponent=0.4, low=0.1, high=0.9), *rest))
    *figures, table = section_parts(wide)
    assert dict(zip(table.columns, table.rows[0], strict=True))["exponent"] == "not known"
    assert _group_row(wide.groups[0])[3] == "not known"
    drawn = [name for figure in figures for trace in figure.traces for name in trace["x"]]
    assert first.group not in drawn and all("wider than the exponent" in figure.note for figure in figures)


def test_a_choice_is_not_clear_where_a_rival_predicts_as_well(t5, fit):
    alone = [replace(law, holdout=0.1 + i) for i, law in enumerate(fit.laws)]
    sure = replace(fit, verdict="one law", decided=True, laws=tuple(alone))
    assert "the choice is clear" in tile(t5, sure, "Law").note
    rival = (alone[0], replace(alone[1], holdout=0.1), *alone[2:])
    note = tile(t5, replace(sure, laws=rival), "Law").note
    assert "clear" not in note and f"{alone[1].name} predicts as well" in note


def test_a_forecast_that_jumps_is_not_shown(ahead):
    assert forecast_jump(ahead) == ""
    curve = {name: list(ahead.curve[name]) for name in ahead.curve.columns}
    curve["value"][0] = 1.5 * ahead.value_now
    assert "jump" in forecast_jump(replace(ahead, curve=Table(curve)))


def test_a_forecast_as_wide_as_its_value_has_no_number_in_its_title(t5, ahead):
    assert "is expected at" in forecast_figure(t5, ahead).title
    wide = replace(ahead, low=0.2 * ahead.value, high=1.4 * ahead.value)
    assert "not known closely" in forecast_figure(t5, wide).title


def test_uneven_intervals_are_named():
    assert uneven_note(np.array([10, 10, 10])) == []
    assert uneven_note(np.array([5100, 5100, 5100, 4088]))[0].endswith("5,100 steps, the last is 4,088.")
    assert "1 to 64 steps" in uneven_note(np.array([1, 2, 4, 8, 16, 32, 64]))[0]


def test_cosines_per_step_multiply_to_those_of_the_interval(run_path):
    """The n-th root of a cosine over n steps, n times, is that cosine; an alignment is divided by √n."""
    with Run(run_path) as run:
        page, total = run_page(run), group(run)
    gaps = (total.steps - total.previous)[1:]
    for name, undo in (("cosine", lambda y: y**gaps), ("alignment", lambda y: y * np.sqrt(gaps))):
        figure = next(figure for figure in page.figures if figure.key == name)
        assert "step" in [button.key for button in figure.buttons]
        line = next(trace for trace in figure.traces if trace.get("set") == "step")
        expected = total.measure(name)[1:, 0]
        assert np.allclose(undo(np.array(line["y"])), expected, rtol=1e-4, atol=1e-9)


def test_the_norm_that_is_shown_is_named(run_path):
    with Run(run_path) as run:
        (stage,) = run_page(run).stages
        body = 12 * (4 * 24 * 24 + 2 * 96 * 24 + 24)
        share = round(100 * body / (body + 300 * 24))
    assert f"without embeddings, output head and scalars ({share} % of the parameters)" in stage.scope
    assert scope_sentence("") == "The source does not say which parameters the norm is of."


def test_soundness_is_claimed_only_of_checkpoints_that_were_compared():
    assert soundness(5, []).startswith("The series is sound: the scan")
    assert "in the box above: 1 finding" in soundness(5, [Finding("gap", (3,), "missing", 0.9)])
    assert soundness(5, [], complete=None) == ""
    assert "1 hint" in soundness(5, [Finding("gap", (3,), "missing", 0.2)])
    assert "was not checked" in soundness(5, [], complete=False)
    assert "sound" not in soundness(1, []) and "sound" not in soundness(0, [])
