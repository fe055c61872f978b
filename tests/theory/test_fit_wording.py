"""What is said about a fit: never more than was found."""

import numpy as np
import pytest

from normscope.cli.fit import _group_row, _law_row
from normscope.theory.answer import highlights
from normscope.theory.laws.groups import GroupFit, GroupFits, exponent_p_values, fit_groups
from normscope.theory.laws.growth import fit_growth, fit_series
from normscope.theory.laws.intervals import Interval
from normscope.theory.laws.laws import EXPONENTS
from normscope.theory.laws.wording import group_sentences
from normscope.theory.measures.time_series import Series
from normscope.views.figures.exponents import exponent_figure, growth_figure
from normscope.views.figures.growth import fit_figure, section
from normscope.views.reports.summary import facts

STEPS = np.arange(0, 60_000, 600)
NOISE = np.random.default_rng(0).standard_normal(len(STEPS))


def fitted(values, steps=STEPS):
    return fit_growth((steps, values))


HUMP = 100 + 40 * np.sin(STEPS / 12_000) + 0.3 * NOISE


def test_a_falling_series_does_not_grow():
    fit = fitted(300 - np.sqrt(STEPS) + 0.2 * NOISE)
    assert fit.decided and " falls by the law sqrt " in fit.sentences[0]
    assert "grow" not in " ".join(fit.sentences)
    assert " grows by the law sqrt " in fitted(300 + np.sqrt(STEPS) + 0.2 * NOISE).sentences[0]


@pytest.mark.parametrize("seed", range(6))
def test_laws_hardly_differ_only_where_they_do(seed):
    rng = np.random.default_rng(seed)
    values = 100 + 30 * np.cumsum(rng.standard_normal(100)) / 10 + 0.1 * rng.standard_normal(100)
    fit = fitted(values)
    named = [sentence for sentence in fit.sentences if "hardly differ" in sentence]
    for sentence in named:
        laws = [law for law in fit.laws if f" {law.name}" in sentence.replace(",", " ")]
        shown = [law.r2 for law in laws if law.name in fit.hardly_differ]
        assert len(shown) > 1 and max(law.r2 for law in fit.laws) - min(shown) <= 0.001


def test_an_exponent_at_an_end_of_its_range_is_not_an_estimate():
    fit = fitted(np.exp(STEPS / 3000.0))
    assert fit.exponent is None and any("stopped at its high end" in text for text in fit.sentences)
    assert fit.law("power").at_bounds == ("p",)
    assert fit.law("power").params["p"] == pytest.approx(EXPONENTS[1])
    assert "p at the end of its range" in _law_row(fit.law("power"))[-1]
    table = section(fit.data, fit).parts[-1]
    (row,) = [row for row in table.rows if row[0] == "power"]
    assert "p at the end of its range" in row[2]


def test_an_interval_as_wide_as_the_search_is_not_shown():
    fit = fitted(100 + NOISE)
    assert fit.exponent is None or fit.exponent.high - fit.exponent.low < 0.9 * (EXPONENTS[1] - EXPONENTS[0])


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.53, 0.588, "0.559, 95 % interval 0.530 to 0.588"),
        (0.558999, 0.559001, "0.5590000, 95 % interval 0.5589990 to 0.5590010"),
    ],
)
def test_both_ends_of_an_interval_can_be_told_apart(low, high, text):
    assert str(Interval(0.559, low, high)) == text


def test_no_place_claims_a_law_where_there_is_none():
    fit = fit_series(Series("norm", STEPS, HUMP, unit="norm"))
    assert fit.verdict == "none"
    (law, *_) = [fact for fact in facts(highlights(fit.data, fit)) if fact.label.startswith("Law")]
    assert law.value == "none" and "clear" not in law.note and law.note.startswith("closest")
    assert "no law holds" in fit_figure(fit.data, fit).title


def test_the_choice_is_clear_only_for_one_law():
    said = {}
    for values in (300 + np.sqrt(STEPS) + 0.2 * NOISE, HUMP, 300 + np.sqrt(STEPS) + 12 * NOISE):
        fit = fit_series(Series("norm", STEPS, values, unit="norm"))
        (law, *_) = [fact for fact in facts(highlights(fit.data, fit)) if fact.label.startswith("Law")]
        said[fit.verdict] = "the choice is clear" in law.note
    assert said == {"one law": True, "none": False, "several laws": False}


def test_groups_show_their_verdict_and_no_infinity():
    group = GroupFit("0", "power", False, 0.9, None, None, None, None, None, False, "none")
    assert _group_row(group) == ["0", "none (closest: power)", "0.90000", "–", "–", "–", "–"]
    found = fit_groups((STEPS, np.sqrt(STEPS)), by="total")
    assert found.groups[0].growth is None and found.groups[0].verdict == "one law"
    assert "∞" not in growth_figure(found).title and "inf" not in growth_figure(found).title
    hump = fit_groups((STEPS, HUMP), by="total")
    assert any("No law can be claimed" in sentence for sentence in hump.sentences)


def test_outliers_are_said_to_count_in_the_parameters():
    steps = np.arange(0, 6000, 100)
    values = 10 + 0.1 * np.sqrt(steps) + np.random.default_rng(7).normal(0, 0.01, len(steps))
    values[30] = 1000.0
    fit = fit_growth((steps, values))
    assert any("step 3,000" in note and "count in R², AICc and the parameters" in note for note in fit.notes)


def test_an_interval_that_ends_where_the_search_does_says_so():
    steps = np.arange(60)
    cut, free = fit_growth((steps, 2.0**-steps)), fit_growth("t5-base")
    assert cut.exponent.low == EXPONENTS[0]
    assert any("cut off at 0.01, the end of the range searched" in sentence for sentence in cut.sentences)
    assert not any("cut off" in sentence for sentence in free.sentences)


def test_no_group_stands_out_only_if_that_was_tested():
    """Exponents .9 and 2.0 with narrow intervals differ, even where none is an outlier among so few."""

    def title(*values):
        groups = [(f"{i:02}", Interval(value, value - 0.1, value + 0.1)) for i, value in enumerate(values)]
        p_values = exponent_p_values([exponent for _, exponent in groups])
        fits = [
            GroupFit(
                name, "power", True, 0.99, e.value, e.low, e.high, 2.0, p, bool(p and p < 0.05), "one law"
            )
            for (name, e), p in zip(groups, p_values, strict=True)
        ]
        found = GroupFits("layer", "norm", tuple(fits), (), {}, "body", (), ())
        return exponent_figure(found).title, group_sentences(fits, {}, "layer")[-1]

    few, said = title(0.9, 1.5, 2.0)
    assert few == "The exponents of the body range from 0.9 to 2; too few layers to say which stands out"
    assert said.startswith("Fewer than four groups")
    spread, said = title(0.9, 1.5, 2.0, 1.6)
    assert spread == "The exponents of the body range from 0.9 to 2; no layer stands out"
    assert said.startswith("Their exponents range from 0.900 to 2.000; none stands out")
    assert title(0.9)[0] == "Layer 00 of the body grows with the exponent 0.9"
    assert "by a different power" in title(*[1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 3.0])[0]
