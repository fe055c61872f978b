"""When the layers settle, in the report: the title says only what the numbers say."""

from __future__ import annotations

import re

import pytest

from normscope.rows import SimilarityRow
from normscope.run import Run
from normscope.views.figures.network.similarity import settled_from, training_figure
from normscope.views.reports.report import report

from .networks import write_network
from .pages import figures

STEPS = (0, 100, 1000, 5000)


def comparisons(by_layer, last=10_000, stack="h"):
    """Rows of layers whose CKA with the last checkpoint is given, step by step."""
    return [
        SimilarityRow(step, "last", last, f"{stack}.{layer}", layer + 1, value, value, None, 500)
        for layer, values in enumerate(by_layer)
        for step, value in zip(STEPS, values, strict=True)
    ]


LOWER = [[0.5, 0.92, 0.95, 0.99], [0.4, 0.6, 0.93, 0.98], [0.3, 0.5, 0.7, 0.95]]


def test_the_step_from_which_a_layer_stays_settled():
    rows = comparisons([[0.95, 0.5, 0.91, 0.99], [0.1, 0.2, 0.3, 0.4], [0.95] * 4, [None] * 4])
    assert settled_from(rows) == {"h.0": 1000, "h.1": 10_000, "h.2": 0}
    assert settled_from(list(reversed(rows))) == settled_from(rows)


@pytest.mark.parametrize(
    ("by_layer", "title"),
    [
        (LOWER, "The lower layers settle first .*: layer 1 from step 100 on, layer 3 from step 5,000 on"),
        (
            LOWER[::-1],
            "The upper layers settle first .*: layer 1 from step 5,000 on, layer 3 from step 100 on",
        ),
        ([LOWER[1], LOWER[0], LOWER[2], LOWER[0]], "between steps 100 and 5,000, in no order of depth"),
        ([LOWER[0]] * 3, "All layers are at CKA 0.9 or more with the last checkpoint from step 100 on"),
        (
            [[0.1, 0.2, 0.3, 0.4]] * 3,
            r"No layer has settled: .* 0.400 \(layer 1\) to 0.400 .* step 5,000",
        ),
        ([[None] * 4] * 2, "Similarity with the previous checkpoint"),
    ],
)
def test_the_title_says_which_layers_settle_first_only_if_they_do(by_layer, title):

    rows = comparisons(by_layer)
    previous = [SimilarityRow(100, "previous", 0, "h.0", 1, 0.5, 0.5, None, 500)]
    assert re.search(title, training_figure([*rows, *previous]).title)


def shown(tmp_path, rows):
    path = write_network(tmp_path / "net.db", steps=(*STEPS, 10_000), layers=2)
    with Run(path, write=True) as run, run.transaction():
        run.write(rows)
    return figures(report(path, tmp_path / "net.html"))


def test_the_report_has_a_line_per_layer_and_a_button_per_comparison(tmp_path):
    rows = comparisons(LOWER)
    rows += [SimilarityRow(1000, "previous", 100, f"h.{i}", i + 1, 0.8, 0.8, 0.7, 500) for i in range(3)]
    spec = shown(tmp_path, rows)["s0-similarity"]
    assert [button["key"] for button in spec["buttons"]] == ["CKA-last", "CKA-previous", "PWCCA-previous"]
    lines = [trace for trace in spec["traces"] if trace.get("set") == "CKA-last"]
    assert [line["y"] for line in lines] == LOWER and lines[0]["x"] == list(STEPS)


def test_comparisons_with_an_earlier_last_checkpoint_are_not_drawn(tmp_path):
    """A study that was stopped after the series had grown has compared some steps with the new last one."""
    old = comparisons([[0.1] * 4], last=5000)[2:3]
    new = [row for row in comparisons(LOWER) if row.step < 1000]
    spec = shown(tmp_path, [*old, *new])["s0-similarity"]
    assert all(line["x"] == [0, 100] for line in spec["traces"] if line.get("set") == "CKA-last")


def test_two_checkpoints_are_drawn_by_layer(tmp_path):
    rows = [SimilarityRow(0, "last", 1, f"h.{i}", i, 0.9, 0.9 - i / 10, 0.6, 500) for i in range(3)]
    rows += [SimilarityRow(1, "previous", 0, f"h.{i}", i, 0.9, 0.9 - i / 10, 0.5, 500) for i in range(3)]
    spec = shown(tmp_path, rows)["s0-similarity"]
    assert [trace["name"] for trace in spec["traces"]] == ["CKA", "PWCCA"]
    assert spec["traces"][1]["y"] == [0.6] * 3 and spec["traces"][0]["x"] == [0, 1, 2]
    path = tmp_path / "net.html"
    assert "Layer 2 differs most between the two models: CKA 0.700" in path.read_text("utf-8")


def test_encoder_and_decoder_are_two_lines_without_a_common_order(tmp_path):
    both = comparisons(LOWER, stack="encoder") + comparisons(LOWER, stack="decoder")
    assert training_figure(both).title == "The layers settle between steps 100 and 5,000"
    rows = [row for row in both if row.step == 0]
    spec = shown(tmp_path, rows)["s0-similarity"]
    assert [trace["name"] for trace in spec["traces"]] == ["CKA, decoder", "CKA, encoder"]
    assert all(trace["x"] == [1, 2, 3] for trace in spec["traces"])


def test_a_run_without_comparisons_has_no_such_figure(tmp_path):
    nothing = [SimilarityRow(0, "last", 100, "h.0", 1, None, None, None, 500)]
    assert "s0-similarity" not in shown(tmp_path, nothing)
