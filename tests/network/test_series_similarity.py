"""Similarity over a series: the same numbers however the study was stopped, and no stale ones."""

from __future__ import annotations

import shutil

import pytest
import torch

import normscope as ns
from normscope.errors import UsageError
from normscope.network import series_similarity as module
from normscope.network import study as study_module
from normscope.network.loading.models import StudyText
from normscope.network.places.placement import Placement
from normscope.network.study import StudyConfig, study
from normscope.rows import SimilarityRow
from normscope.run import Run
from tests.network.saved_models import TEXT, save_model

tf = pytest.importorskip("transformers")

STEPS = (0, 10, 100)
LONG = StudyText([*TEXT.splitlines(), *(" ".join(reversed(line.split())) for line in TEXT.splitlines())])


@pytest.fixture
def series(tmp_path):
    for step in STEPS:
        save_model(tmp_path / "series" / f"checkpoint-{step}", seed=step)
    return tmp_path / "series"


@pytest.fixture
def sampled(monkeypatch):
    """The number of models whose states were taken since the last look."""
    calls = []
    real = module.sample_states

    def counted(*args, **options):
        calls.append(1)
        return real(*args, **options)

    monkeypatch.setattr(module, "sample_states", counted)

    def count():
        number = len(calls)
        calls.clear()
        return number

    return count


def run_study(series, *sources, run="run.db", similarity=True, text=LONG, **changes):
    options = {"baseline": False, "heads": False, "similarity": similarity} | changes
    config = StudyConfig(run=series.parent / run, placement=Placement("cpu"), **options)
    return study([str(source) for source in sources or [series]], text, config)


def rows_in(path):
    with Run(path) as run:
        return {(row["step"], row["other"], row["module"]): row for row in run.table(SimilarityRow)}


def test_each_step_is_compared_with_the_previous_and_the_last(series, sampled):
    found = run_study(series)
    assert sampled() == 3, "the last one's states are kept"
    pairs = list(dict.fromkeys((row.step, row.other, row.other_step) for row in found.similarity))
    assert pairs == [(0, "last", 100), (10, "previous", 0), (10, "last", 100), (100, "previous", 10)]
    assert [row.layer for row in found.similarity[:3]] == [0, 1, 2]
    models = {step: tf.AutoModel.from_pretrained(series / f"checkpoint-{step}") for step in STEPS}
    tokenizer = tf.AutoTokenizer.from_pretrained(series / "checkpoint-0")
    lines = [tokenizer(line, return_tensors="pt") for line in LONG.sentences if line]
    batches = [{name: line[name] for name in ("input_ids", "attention_mask")} for line in lines]
    for step, other, name in ((0, 100, "last"), (100, 10, "previous")):
        direct = ns.layer_similarity(models[step], models[other], batches).layers
        kept = [row for row in found.similarity if (row.step, row.other) == (step, name)]
        for a, b in zip(kept, direct, strict=True):
            assert (a.module, a.tokens) == (b.module, b.tokens)
            assert a.cka == pytest.approx(b.cka, rel=1e-4)
    stored = _sorted(rows_in(series.parent / "run.db"))
    assert found.similarity == tuple(SimilarityRow(**row) for row in stored)
    assert sum("PWCCA is missing for 2 of 2 layers" in text for text in found.warnings) == 1


def _sorted(rows):
    order = sorted(rows, key=lambda key: (key[0], key[1] == "last"))
    place = {"input": 0, "0": 1, "1": 2}
    return sorted(
        (rows[key] for key in order),
        key=lambda row: (row["step"], row["other"] == "last", place[row["module"].rpartition(".")[2]]),
    )


def test_a_study_that_was_stopped_continues_with_the_same_numbers(series, sampled, monkeypatch):
    whole = run_study(series, run="whole.db")
    sampled()
    real, calls = module.compare_states, []

    def stopped(*args):
        calls.append(1)
        if len(calls) == 3:  # step 10 with the last: after its saturation, before its similarity is written
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(module, "compare_states", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_study(series)
    assert {step for step, _, _ in rows_in(series.parent / "run.db")} == {0}
    monkeypatch.setattr(module, "compare_states", real)
    sampled()
    assert run_study(series) == whole
    assert sampled() == 3, "the previous, the last and the step itself"
    assert run_study(series) == whole and sampled() == 0


def test_similarity_of_a_study_that_is_already_measured(series, sampled, monkeypatch):
    run_study(series, similarity=False)
    assert not rows_in(series.parent / "run.db") and sampled() == 0
    monkeypatch.setattr(study_module, "saturation", lambda *args, **options: pytest.fail("measured again"))
    assert run_study(series).similarity and sampled() == 3


def test_a_new_last_checkpoint_is_what_every_step_is_compared_with(series, sampled):
    before = run_study(series)
    save_model(series / "checkpoint-200", seed=200)
    sampled()
    after = run_study(series)
    assert {row.other_step for row in after.similarity if row.other == "last"} == {200}
    previous = [row for row in before.similarity if row.other == "previous"]
    assert set(previous) < set(after.similarity)
    fresh = run_study(series, run="fresh.db")
    assert after == fresh


@pytest.mark.slow
def test_numbers_of_a_replaced_checkpoint_are_deleted_also_without_the_option(series):
    run_study(series)
    save_model(series / "checkpoint-10", seed=77)
    run_study(series, similarity=False)
    left = rows_in(series.parent / "run.db")
    assert {(step, other) for step, other, _ in left} == {(0, "last")}, "it compares 0 with 100"
    assert run_study(series) == run_study(series, run="fresh.db")


@pytest.mark.slow
def test_other_settings_measure_the_similarity_again_with_the_step(series, sampled):
    first = run_study(series)
    sampled()
    run_study(series, limit=ns.Limit(scales=(2.0**8,)), similarity=False)
    assert not rows_in(series.parent / "run.db")
    assert run_study(series).similarity == first.similarity and sampled() == 3
    assert run_study(series, text=StudyText(TEXT.splitlines())).similarity != first.similarity


@pytest.mark.slow
def test_another_tokenizer_means_other_tokens(series):
    file = series / "checkpoint-10" / "tokenizer.json"
    text = file.read_text().replace('"cat": ', '"cow": ')
    assert text != file.read_text()
    file.write_text(text)
    found = run_study(series)
    assert {(row.step, row.other_step) for row in found.similarity} == {(0, 100)}
    said = "step 10: no similarity with step 0: the two were not run on the same tokens"
    assert any(said in text for text in found.warnings)
    again = run_study(series)
    assert again == found


def test_inputs_that_are_made_anew_each_time_are_not_compared(tmp_path):
    program = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    torch.seed()
    return model, [torch.randn(2, 5, 8)]

def steady():
    model, _ = build()
    torch.manual_seed(1)
    return model, [torch.randn(2, 50, 8)]
"""
    (tmp_path / "net.py").write_text(program)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    (tmp_path / "series").mkdir()
    for step in (1, 2):
        torch.manual_seed(step)
        model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        for parameter in model.parameters():
            parameter.data.normal_()
        torch.save(model.state_dict(), tmp_path / "series" / f"step_{step}.pt")
    found = run_study(tmp_path / "series", f"{tmp_path}/net.py:build", tmp_path / "series", run="a.db")
    assert not found.similarity and any("inputs that build() makes anew" in text for text in found.warnings)
    found = run_study(tmp_path / "series", f"{tmp_path}/net.py:steady", tmp_path / "series", run="b.db")
    assert [row.layer for row in found.similarity] == [0, 1, 2] * 2
    assert found.similarity[0].cka == pytest.approx(1) and found.similarity[0].pwcca is None
    assert all(row.pwcca is not None for row in found.similarity if row.layer)


def test_before_and_after_fine_tuning_are_a_series_of_two(tmp_path):
    before, after = tmp_path / "base", tmp_path / "tuned"
    save_model(before)
    shutil.copytree(before, after)
    model = tf.BertModel.from_pretrained(before)
    tuned = tf.BertForSequenceClassification(model.config)
    tuned.bert.load_state_dict(model.state_dict(), strict=False)
    tuned.bert.encoder.layer[1].output.dense.weight.data.normal_()
    tuned.save_pretrained(after)
    config = ns_config(tmp_path, steps=(0, 1))
    found = study([str(before), str(after)], LONG, config)
    assert [(row.step, row.other, row.other_step) for row in found.similarity] == [
        *[(0, "last", 1)] * 3,
        *[(1, "previous", 0)] * 3,
    ]
    values = [row.cka for row in found.similarity[:3]]
    assert values[:2] == pytest.approx([1, 1]) and values[2] < 0.99


def ns_config(folder, steps):
    from normscope.network.loading.models import SeriesOptions

    options = SeriesOptions(steps)
    return StudyConfig(
        run=folder / "run.db", placement=Placement("cpu"), series=options, baseline=False, similarity=True
    )


def test_models_of_other_depth_and_nan_states_are_said(series):
    save_model(series / "checkpoint-10", seed=1, num_hidden_layers=1)
    model = tf.BertModel.from_pretrained(series / "checkpoint-0")
    norm = model.encoder.layer[1].output.LayerNorm
    norm.weight.data.fill_(1.6e38)  # finite parameters, whose outputs are not
    norm.bias.data.fill_(1.6e38)
    model.save_pretrained(series / "checkpoint-0")
    found = run_study(series, limit=ns.Limit(scales=(2.0,)))
    assert {row.layer for row in found.similarity if row.step == 10} == {0, 1}
    assert {row.cka for row in found.similarity if row.step == 0 and row.layer == 2} == {None}
    text = " ".join(found.warnings)
    assert "only step 100 has encoder.layer.1" in text
    assert "states are NaN or infinite in this checkpoint, from encoder.layer.1 on" in text
    again = run_study(series, limit=ns.Limit(scales=(2.0,)))
    assert (again.similarity, again.warnings) == (found.similarity, found.warnings)


def test_a_single_model_has_nothing_to_be_compared_with(series):
    for run in ("run.db", None):
        config = StudyConfig(run=run and series.parent / run, placement=Placement("cpu"), similarity=True)
        with pytest.raises(UsageError, match="needs at least two models of one stage; got 1"):
            study([str(series / "checkpoint-0")], LONG, config)
    assert not (series.parent / "run.db").exists()


def test_stages_are_compared_within_themselves(tmp_path):
    for name in ("stage1-step5", "stage1-step10", "stage2-step5"):
        save_model(tmp_path / "series" / name, seed=len(name))
    found = run_study(tmp_path / "series")
    assert {(row.stage, row.step, row.other_step) for row in found.similarity} == {
        ("stage1", 5, 10),
        ("stage1", 10, 5),
    }
    assert any("stage2/5: the only checkpoint of its stage" in text for text in found.warnings)
