"""What growth does: the curves, the finding in the title, and how each number was measured."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

import normscope as ns
from normscope.errors import UsageError
from normscope.rows import AttentionRow
from normscope.run import Run
from normscope.theory.effects.curves import Curves, value_at
from normscope.theory.effects.growth_effects import growth_effects
from normscope.theory.measures.series_set import series
from normscope.views.figures.network import effects, heads, saturation
from normscope.views.reports.report import run_page

from .growing import HEADS, LAYERS, STEPS, activations, attention, probed, studied, write_growing
from .networks import write_network
from .runs import write_walk


def found(path):
    with Run(path) as run:
        return growth_effects(run, "", series(run)[0])


def section_of(path):
    with Run(path) as run:
        return effects.section(run, "", series(run)[0])


def change(path, *statements):
    """Write to a run file by functions of the open run."""
    with Run(path, write=True) as run, run.transaction():
        for statement in statements:
            statement(run)


@pytest.fixture
def growing(tmp_path):
    return write_growing(tmp_path / "run.db")


# -- the curves -----------------------------------------------------------------------


def test_each_curve_is_the_fold_of_its_rows(growing):
    """Against plain SQL over the same file."""
    result = found(growing)
    with Run(growing) as run:
        for i, step in enumerate(STEPS):
            (largest,) = run.query("SELECT max(logit) FROM attention WHERE step = ?", (step,))[0]
            (entropy,) = run.query("SELECT avg(relative_entropy) FROM attention WHERE step = ?", (step,))[0]
            sql = "SELECT avg(cosine), min(cosine), max(cosine) FROM saturation WHERE step = ? AND layer > 0"
            mean, low, high = run.query(sql, (step,))[0]
            logits = [row[0] for row in run.query("SELECT logit FROM attention WHERE step = ?", (step,))]
            assert result.get("logit").lines["largest head"][i] == largest
            assert result.get("logit").lines["median head"][i] == pytest.approx(np.median(logits))
            assert result.get("entropy").lines["mean over heads"][i] == pytest.approx(entropy)
            lines = result.get("saturation").lines
            assert [lines[name][i] for name in lines] == pytest.approx([mean, low, high])
            (last,) = run.query(
                "SELECT norm FROM activation WHERE step = ? AND kind = 'residual' ORDER BY layer DESC",
                (step,),
            )[0]
            assert result.get("residual").lines[result.get("residual").told][i] == last


def test_shares_of_types_add_up(growing):
    types = found(growing).get("types")
    assert np.allclose(np.sum(list(types.lines.values()), axis=0), 100)
    assert types.lines["mean"][0] == pytest.approx(100 * 3 / (LAYERS * HEADS))


def test_the_norm_between_two_records_is_interpolated_and_outside_unknown():
    norm = Curves("norm", (10, 50, 200), {"norm": (1.0, 2.0, 5.0)}, "norm")
    assert value_at(norm, 50) == (2.0, True)
    assert value_at(norm, 125) == (3.5, False)
    assert math.isnan(value_at(norm, 0)[0]) and math.isnan(value_at(norm, 201)[0])


@pytest.mark.parametrize(
    "values, turn",
    [
        ((0.2, 0.9, 0.6), (1, 0.9)),
        ((0.6, 0.1, 0.7), (1, 0.1)),
        ((0.2, 0.5, 0.6), None),
        ((0.2, 0.61, 0.6), None),
        ((0.5, 0.5, 0.5), None),
    ],
)
def test_a_turn_is_clearly_beyond_both_ends(values, turn):
    assert Curves("saturation", (0, 1, 2), {"a": values}, "a").change().turn == turn


# -- the finding ----------------------------------------------------------------------


def test_the_title_says_what_happened_with_numbers(growing):
    with Run(growing) as run:
        norms = series(run)[0].values
    title = section_of(growing).figures[0].title
    assert title.startswith(f"While the norm of the body grew from {norms[0]:.4g} to {norms[-1]:.4g} (×")
    assert "the mean saturation of the layers rose from 0.300 to 0.800" in title
    assert "the largest attention logit rose from 1.00 to 9.00" in title
    assert title.endswith("(steps 0 to 1,000)")


def test_a_saturation_that_falls_is_said_to_fall(tmp_path):
    path = write_growing(tmp_path / "run.db", cosines=(0.3, 0.9, 0.4, 0.1))
    title = section_of(path).figures[0].title
    assert "saturation of the layers fell from 0.300 to 0.100 (peak 0.900 at step 10)" in title


def test_what_did_not_change_is_not_said_to_rise(tmp_path):
    path = write_growing(tmp_path / "run.db", cosines=(0.5, 0.502, 0.498, 0.503), logits=(2, 2.01, 2, 2.02))
    title = section_of(path).figures[0].title
    assert "rose" not in title and "fell" not in title and "peak" not in title
    assert "0.500 at the start and 0.503 at the end" in title


def test_layers_that_did_not_converge_are_said(tmp_path):
    path = write_growing(tmp_path / "run.db", converged=False)
    figure = section_of(path).figures[0]
    assert figure.title.endswith("; 1 of 3 layers did not converge")
    (line,) = (t for t in figure.traces if t["name"] == "mean over layers")
    assert line["marker"]["symbol"] == ["circle-open"] * len(STEPS)
    assert "Hollow" in figure.note


def test_the_title_compares_the_same_two_steps(tmp_path):
    """A step 0 without a recorded norm is not part of a sentence about the norm."""
    path = write_growing(tmp_path / "run.db")
    change(path, lambda run: run.delete_rows("weight", "step = 0"))
    title = section_of(path).figures[0].title
    assert "rose from 0.500 to 0.800" in title and "(steps 10 to 1,000)" in title


def test_nan_is_a_gap_and_a_sentence(growing):
    """One head's NaN makes the largest logit of the step unknown; it is not skipped."""
    nan = AttentionRow(1000, "h.0.attn", 1, 0, math.nan, math.nan, None, "probe")
    change(growing, lambda run: run.write([nan]))
    section = section_of(growing)
    (line,) = (t for t in section.figures[0].traces if t["name"] == "largest head")
    assert line["y"] == [1.0, 2.0, 4.0, None]
    assert any(
        "from step 1,000 on, the largest attention logit is not a finite" in s for s in section.sentences
    )
    assert "logit" not in section.figures[0].title  # its ends are not those of the others


# -- panels ---------------------------------------------------------------------------


def test_panels_share_one_step_axis_and_do_not_overlap(growing):
    figure = section_of(growing).figures[0]
    axes = sorted((axis["domain"] for name, axis in figure.layout.items() if name.startswith("yaxis")))
    assert len(axes) == 7 and all(a[1] < b[0] for a, b in pairwise(axes))
    assert axes[0][0] >= 0 and axes[-1][1] < 1
    assert figure.step_axis and not [
        name for name in figure.layout if name.startswith("xaxis") and name != "xaxis"
    ]
    assert {trace.get("yaxis", "y") for trace in figure.traces} == {"y", *(f"y{i}" for i in range(2, 8))}


def test_missing_parts_are_left_out(tmp_path):
    path = write_walk(tmp_path / "run.db", (0, 10, 50, 200), layers=LAYERS)
    change(path, *(lambda run, s=s: run.write(attention(s, 1.0 + s, "training")) for s in (10, 50, 200)))
    section = section_of(path)
    headings = [note["text"] for note in section.figures[0].layout["annotations"]]
    assert [text.partition(" (")[0] for text in headings] == [
        "Norm of the body", "Largest attention logit", "Attention entropy",
    ]  # fmt: skip
    assert any("training batches, which differ" in sentence for sentence in section.sentences)
    assert "saturation" not in section.figures[0].title


def test_the_probe_is_preferred_to_the_training_batch(growing):
    change(growing, *(lambda run, s=s: run.write(attention(s, 99.0, "training")) for s in (0, 7, 1000)))
    assert found(growing).get("logit").steps == STEPS
    assert max(found(growing).get("logit").lines["largest head"]) == 9.0


def test_against_the_norm_has_a_point_per_step_at_its_norm(growing):
    _, figure = section_of(growing).figures
    norm = found(growing).norm
    trace = figure.traces[0]
    assert trace["x"] == pytest.approx([value_at(norm, step)[0] for step in STEPS], rel=1e-5)
    assert trace["y"] == pytest.approx([0.3, 0.5, 0.6, 0.8])
    assert trace["text"][0] == "step 0" and trace["text"][-1] == "step 1,000"
    assert "1 step the norm is interpolated" in figure.note
    assert figure.title.startswith(
        "Against the norm of the body: saturation 0.300 to 0.800, largest logit 1.00 to 9.00 and attention"
    )


def test_the_table_marks_an_interpolated_norm(growing):
    (table,) = section_of(growing).tables
    assert [row[0] for row in table.rows] == list(STEPS)
    assert [str(row[1]).startswith("≈") for row in table.rows] == [False, False, True, False]


def test_one_type_of_heads_is_a_sentence_not_a_panel(tmp_path):
    path = write_walk(tmp_path / "run.db", (0, 10, 1000), layers=LAYERS)
    change(path, *(lambda run, s=s: probed(run, s, 0.5, 1.0 + s) for s in (0, 10)))
    section = section_of(path)
    assert "Every head is argmax at every measured step." in section.sentences
    assert not any("type" in note["text"] for note in section.figures[0].layout["annotations"])


def test_one_probed_step_has_a_table_and_no_figure(tmp_path):
    path = write_walk(tmp_path / "run.db", (0, 10, 1000), layers=LAYERS)
    change(path, lambda run: probed(run, 10, 0.5, 3.0))
    section = section_of(path)
    assert section.figures == [] and len(section.tables[0].rows) == 1


# -- who measured ---------------------------------------------------------------------


def test_probes_and_saturate_are_never_one_line(growing):
    change(growing, lambda run: studied(run, 1000, 0.95))
    result = found(growing)
    assert result.get("saturation").steps == (0, 10, 100) and result.left_out == (1000,)
    assert result.get("logit").steps == STEPS  # these stay those of the probe
    with Run(growing) as run:
        layers, types = saturation.section(run, ""), heads.section(run, "")
    assert "The last layer's saturation is 1.05" not in layers.sentences
    assert any(
        "by “normscope saturate”, on a saved checkpoint and 2,000 tokens" in s for s in layers.sentences
    )
    left_out = (
        "Not in the lines over training: step 1,000 that “normscope saturate” measured, on another text."
    )
    assert left_out in layers.sentences and left_out in types.sentences
    assert left_out in section_of(growing).sentences
    (over_training,) = (f for f in layers.figures if f.key == "saturation-training")
    assert max(over_training.traces[0]["x"]) == 100


def test_the_sections_say_that_the_training_measured(growing):
    with Run(growing) as run:
        layers, types = saturation.section(run, ""), heads.section(run, "")
    assert "Measured while it trained, on a probe batch of 512 tokens." in layers.sentences
    assert "Measured while it trained, on a probe batch." in types.sentences
    assert not any("random" in sentence for sentence in layers.sentences)


def test_rows_of_unknown_origin_are_not_said_to_be_a_probes(tmp_path):
    with Run(write_network(tmp_path / "net.db")) as run:
        sentences = [*saturation.section(run, "").sentences, *heads.section(run, "").sentences]
    assert not any("while it trained" in s or "saturate" in s for s in sentences)


def test_saturation_alone_without_norms_has_no_section_of_effects(tmp_path):
    with Run(write_network(tmp_path / "net.db")) as run:
        assert effects.section(run, "", None) is None


def test_activations_without_weights_are_shown(tmp_path):
    with Run.create(tmp_path / "run.db") as run:
        with run.transaction():
            for step in (0, 10):
                run.write(activations(step, 1.0 + step))
        page = run_page(run)
    keys = [section.key for section in page.stages[0].sections]
    assert keys == ["effects"]
    assert page.figures[0].title.startswith("The residual stream after the last layer rose from 4.00 to 44.0")


# -- the report and ns.plot -----------------------------------------------------------


def test_the_report_has_the_section_after_growth(growing):
    with Run(growing) as run:
        keys = [section.key for section in run_page(run).stages[0].sections]
    assert keys[keys.index("growth") + 1] == "effects"


def test_plot_draws_both_figures(growing):
    over_steps = ns.plot(growing, show="effects", x_axis="log")
    assert over_steps.layout.xaxis.type == "log" and len(over_steps.data) > 7
    against = ns.plot(str(growing), show="effects-norm")
    assert against.layout.xaxis.title.text == "norm of the body ‖θ‖"
    with pytest.raises(UsageError, match="it has growth, effects and effects-norm"):
        ns.plot(growing, show="effect")
