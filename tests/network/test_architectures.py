"""The table of architectures in docs/saturation.md: its rows; a few of them measured, all by test-slow."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from benchmarks import architectures
from benchmarks import reference_float64 as reference


def test_the_table_has_a_row_for_every_architecture_and_no_fault():
    page = architectures.DOCS.read_text()
    begin, end = architectures.MARKS
    lines = page.split(begin)[1].split(end)[0].strip().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert tuple(rows[0]) == architectures.HEADER and len(rows) - 2 == len(architectures.all_names()) >= 45
    for name, row in zip(architectures.all_names(), rows[2:], strict=True):
        assert row[0].startswith(name) and len(row) == len(architectures.HEADER)
        assert float(row[2]) <= architectures.NEAR and float(row[3]) <= architectures.NEAR_IN_FLOAT32
        assert row[-1] == "yes"


@pytest.mark.parametrize(
    "name", ["XLM", "SqueezeBERT", "ProphetNet", "Mixtral", "Mamba", "forward gives NaN"]
)
def test_some_architectures_are_measured_as_float64_does(name):
    (result,) = architectures.run_all([name])
    assert not result.faults


@pytest.mark.slow
@pytest.mark.parametrize("name", architectures.all_names())
def test_every_architecture_is_measured_as_float64_does(name):
    (result,) = architectures.run_all([name])
    assert not result.faults


def test_the_check_finds_a_wrong_cosine_a_wrong_type_and_a_model_that_was_changed(monkeypatch):
    cosines, types = reference.cosines, reference.head_types
    measure = architectures.saturation_and_heads
    monkeypatch.setattr(
        reference, "cosines", lambda *args: {key: value + 1e-5 for key, value in cosines(*args).items()}
    )
    monkeypatch.setattr(reference, "head_types", lambda *args: dict.fromkeys(types(*args), "mean"))

    def careless(model, batches):
        found = measure(model, batches)
        next(model.parameters()).data.view(-1)[0] *= 1 + 1e-7
        model.train()
        return found

    monkeypatch.setattr(architectures, "saturation_and_heads", careless)
    (result,) = architectures.run_all(["GPT-2"])
    assert set(result.changed) == {"parameters", "training mode"}
    assert any("cosine" in text for text in result.faults) and any("argmax" in text for text in result.faults)
