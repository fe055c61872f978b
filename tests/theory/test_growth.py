import json
import subprocess
import sys

import numpy as np
import pytest

from normscope.cli.output import plain
from normscope.errors import SeriesError, UsageError
from normscope.theory.laws.growth import fit_growth, fit_series
from normscope.theory.measures.time_series import Series, reference

STEPS = np.arange(0, 60000, 600)


@pytest.fixture(scope="module")
def t5():
    return fit_growth("t5-base")


@pytest.mark.parametrize(
    ("law", "r2"),
    [
        ("sqrt", 0.99856),
        ("linear", 0.9663),
        ("quartic-root", 0.9363),
        ("log", 0.578),
        ("sqrt-linear", 0.9995),
        ("power", 0.9997),
    ],
)
def test_t5_has_the_published_fits(t5, law, r2):
    assert t5.law(law).r2 == pytest.approx(r2, abs=0.6 * 10 ** -(len(str(r2)) - 2))


def test_t5_parameters_exponent_and_verdict(t5):
    assert t5.law("sqrt").params == pytest.approx({"a": 5.4116, "b": 193.55}, rel=1e-4)
    assert t5.exponent.value == pytest.approx(0.559, abs=5e-4)
    assert t5.exponent.low < 0.559 < t5.exponent.high
    assert t5.best == "power" and {"power", "sqrt-linear"} <= set(t5.candidates)
    assert "sqrt" not in t5.candidates
    text = " ".join(t5.sentences)
    assert "0.99856" in text and "sqrt-linear and power fit better" in text
    assert t5.verdict == "none" and not t5.decided
    assert "none of these laws holds: the residuals of power" in text and "systematic, not random" in text


def test_t5_without_its_first_fifth_cannot_distinguish(t5):
    series = reference("t5-base")
    late = fit_series(Series("late", series.steps[21:], series.values[21:]))
    assert {"power", "sqrt-linear", "sqrt"} <= set(late.candidates) and not late.decided
    assert late.verdict == "none" and "systematic" in late.sentences[0]
    assert any("hardly differ (R² within 0.001)" in sentence for sentence in late.sentences)
    assert min(late.law(name).r2 for name in late.hardly_differ) >= max(law.r2 for law in late.laws) - 0.001


def test_r2_and_aicc_against_numpy(t5):
    series = reference("t5-base")
    design = np.stack([np.sqrt(series.steps), np.ones(len(series))], axis=1)
    _, rss, *_ = np.linalg.lstsq(design, series.values, rcond=None)
    n, k = len(series), 3
    slow = n * np.log(rss[0] / n) + 2 * k + 2 * k * (k + 1) / (n - k - 1)
    assert t5.law("sqrt").aicc == pytest.approx(slow)
    assert t5.law("sqrt").r2 == pytest.approx(
        1 - rss[0] / np.square(series.values - series.values.mean()).sum()
    )


def test_same_seed_same_interval():
    assert fit_growth("t5-base", seed=3).exponent == fit_growth("t5-base", seed=3).exponent
    assert fit_growth("t5-base", seed=3).exponent != fit_growth("t5-base", seed=4).exponent


def test_source_may_be_arrays_a_series_or_a_csv_file(tmp_path):
    values = 10 + np.sqrt(STEPS) + np.random.default_rng(0).normal(0, 0.2, len(STEPS))
    path = tmp_path / "s.csv"
    path.write_text(
        "step,norm\n" + "".join(f"{s},{v!r}\n" for s, v in zip(STEPS, values.tolist(), strict=True))
    )
    fits = [
        fit_growth((STEPS, values)),
        fit_growth(Series("series", STEPS, values)),
        fit_growth(path),
        fit_growth(str(path)),
    ]
    assert len({fit.law("sqrt").r2 for fit in fits}) == 1
    assert fits[0] == fits[1]


def test_json_has_the_stable_names(t5):
    document = json.loads(json.dumps(plain(t5), allow_nan=False))
    assert {"series", "points", "laws", "best", "exponent"} <= set(document)
    assert {"name", "formula", "params", "r2", "aicc"} <= set(document["laws"][0])
    assert set(document["exponent"]) == {"value", "low", "high"}


def test_tables_curve_and_notebook(t5):
    assert list(t5.to_pandas()["law"]) == [law.name for law in t5.laws]
    assert t5.to_polars().height == len(t5.laws)
    assert "<table>" in t5._repr_html_()
    assert t5.curve([0], "sqrt")[0] == pytest.approx(193.55, abs=0.01)
    with pytest.raises(UsageError, match="no law"):
        t5.law("cubic")


@pytest.mark.parametrize(
    ("steps", "values", "message"),
    [
        ([1, 2], [1, 2], "2 usable points"),
        ([], [], "series has no points; expected at least one"),
        ([1, 2, 3, 4], [5, 5, 5, 5], "constant at 5"),
        ([1, 2, 3, 4], [np.nan] * 4, "0 usable points"),
        ([1, 2, 3, 4], [1e200, 2e200, 3e200, 4e200], "4e\\+200, which cannot be a norm"),
        ([1, 2, 3, 4], [0, 0, 0, 0], "constant at 0"),
        ([-5, 2, 3, 4], [1, 2, 3, 4], "negative"),
        ([1, 1, 1, 1], [1, 2, 3, 4], "1 usable point;"),
    ],
)
def test_hopeless_input_is_one_sentence(steps, values, message):
    with pytest.raises(SeriesError, match=message):
        fit_growth((steps, values))


@pytest.mark.parametrize(
    "values",
    [
        lambda t: 100 - 0.1 * np.sqrt(t),
        lambda t: -10 + np.sqrt(t),
        lambda t: np.where(t == 600, 0.0, np.sqrt(t) + 1),
        lambda t: np.where(np.arange(len(t)) % 7 == 3, np.nan, np.sqrt(t) + 1),
        lambda t: 1e-90 * (1 + np.sqrt(t)),
        lambda t: 1e90 * (1 + np.sqrt(t)),
        lambda t: np.sqrt(t) + np.where(t == 30000, 1e6, 0),
        lambda t: np.exp(t / 1000.0),
        lambda t: np.where(t > 100, 2.0, 1.0),
        lambda t: np.sin(t / 5000.0),
    ],
)
def test_odd_input_gets_an_answer(values):
    fit = fit_growth((STEPS, values(STEPS)))
    json.dumps(plain(fit), allow_nan=False)
    assert fit.best in {law.name for law in fit.laws} and fit.sentences


def test_three_points_and_one_late_point():
    fit = fit_growth(([10, 20, 40], [1.0, 2.0, 3.0]))
    assert not fit.decided and fit.exponent is None and "too few points" in fit.sentences[0]
    assert fit_growth(([0, 10, 20, 30, 10**9], [1.0, 2.0, 2.5, 3.0, 3.1])).points == 5


def test_order_of_points_does_not_matter():
    values = 10 + np.sqrt(STEPS)
    shuffled = np.random.default_rng(0).permutation(len(STEPS))
    fit = fit_growth((STEPS[shuffled], values[shuffled]))
    assert fit.laws == fit_growth((STEPS, values)).laws
    assert any("sorted" in note for note in fit.notes)


def test_a_million_points_are_thinned_with_a_note():
    steps = np.arange(10**6)
    fit = fit_growth((steps, 5 + steps**0.4))
    assert fit.points <= 2000 and "thinned" in fit.notes[0]
    assert fit.exponent.value == pytest.approx(0.4, abs=1e-4)


def test_importing_the_package_loads_no_scipy():
    code = "import sys, normscope; assert not {'scipy', 'torch', 'plotly'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
