"""A study that is started again measures only what changed."""

from __future__ import annotations

import pytest
import torch

from normscope.errors import AnotherSeries, ModelError, UsageError
from normscope.network import study as study_module
from normscope.network.loading.models import StudyText
from normscope.network.places.placement import Placement
from normscope.network.settling.full_text import Limit
from normscope.network.study import StudyConfig, study, study_homogeneity
from normscope.run import HeadRow, Run, SaturationRow
from normscope.weights.scan.scan import scan
from tests.network.saved_models import TEXT, save_model

pytest.importorskip("transformers")


GIVEN = Limit((2.0**10, 2.0**14))
"""Scales that are given need no search: what is tried here is when a step is measured, not how far."""


@pytest.fixture
def measured(monkeypatch):
    """The number of measurements since the last look."""
    calls = []
    real = study_module.saturation_and_heads

    def counted(*args, **options):
        calls.append(1)
        return real(*args, **options)

    monkeypatch.setattr(study_module, "saturation_and_heads", counted)

    def count():
        number = len(calls)
        calls.clear()
        return number

    return count


@pytest.fixture
def series(tmp_path):
    for step in (0, 10, 100):
        save_model(tmp_path / "series" / f"checkpoint-{step}", seed=step)
    return tmp_path / "series"


def run_study(series, tokenizer=None, **changes):
    options = {"baseline": False, "limit": GIVEN, **changes}
    config = StudyConfig(run=series.parent / "run.db", placement=Placement("cpu"), **options)
    return study([str(series)], StudyText(TEXT.splitlines(), tokenizer), config)


def test_an_unchanged_study_measures_nothing_and_reads_each_table_once(series, measured, monkeypatch):
    first = run_study(series, limit=Limit())
    assert measured() == 3
    statements = []
    real = Run.query

    def traced(self, sql, parameters=()):
        statements.append(sql)
        return real(self, sql, parameters)

    monkeypatch.setattr(Run, "query", traced)
    again = run_study(series, limit=Limit())
    assert measured() == 0
    assert again == first and first.look_ahead
    for table in ("artifact", "saturation", "head"):
        assert sum(f"FROM {table} " in sql for sql in statements) == 1, statements


def test_finding_finished_steps_uses_the_index(series):
    run_study(series)
    with Run(series.parent / "run.db") as run:
        (plan,) = run.query("EXPLAIN QUERY PLAN SELECT key, value FROM artifact WHERE kind = 'x'")
    assert "USING INDEX" in plan[-1]


def test_a_replaced_checkpoint_is_measured_again(series, measured):
    before = run_study(series)
    save_model(series / "checkpoint-10", seed=77)
    measured()
    after = run_study(series)
    assert measured() == 1
    changed = {row.step for row in set(after.layers) - set(before.layers)}
    assert changed == {10}
    assert run_study(series).layers == after.layers and measured() == 0


@pytest.mark.slow
def test_another_tokenizer_or_a_changed_one_is_measured_again(series, measured, tmp_path):
    run_study(series)
    measured()
    other = save_model(tmp_path / "words", seed=1)
    run_study(series, tokenizer=str(other))
    assert measured() == 3
    run_study(series, tokenizer=str(other))
    assert measured() == 0
    file = other / "tokenizer.json"
    file.write_text(file.read_text().replace('"cat"', '"cow"'))
    run_study(series, tokenizer=str(other))
    assert measured() == 3


def test_warnings_of_finished_steps_are_kept(series, measured):
    long = StudyText([*TEXT.splitlines(), "the cat sat on the mat " * 200])
    config = StudyConfig(
        run=series.parent / "run.db", placement=Placement("cpu"), baseline=False, limit=GIVEN
    )
    first = study([str(series)], long, config)
    assert any("longer than the model allows" in warning for warning in first.warnings)
    measured()
    assert study([str(series)], long, config) == first
    assert measured() == 0


@pytest.mark.parametrize("command", [study, study_homogeneity])
def test_a_study_that_fails_at_once_leaves_no_run_file(series, command):
    run = series.parent / "run.db"
    config = StudyConfig(run=run, placement=Placement("cpu", "int8"))
    with pytest.raises(UsageError, match="int8"):
        command([str(series / "checkpoint-0")], StudyText(TEXT.splitlines()), config)
    assert not run.exists()
    with Run.create(run):
        pass
    with pytest.raises(UsageError, match="int8"):
        command([str(series / "checkpoint-0")], StudyText(TEXT.splitlines()), config)
    assert run.exists(), "a file of the user's is never deleted"


def test_another_sentence_is_measured_again_and_no_map_of_the_old_one_stays(series, measured, monkeypatch):
    def with_sentence(sentence):
        config = StudyConfig(
            run=series.parent / "run.db", placement=Placement("cpu"), baseline=False, limit=GIVEN
        )
        study([str(series)], StudyText(TEXT.splitlines(), example=sentence), config)
        return measured()

    assert [with_sentence(None), with_sentence(None)] == [3, 0]
    assert [with_sentence("the cat sat"), with_sentence("the cat sat")] == [3, 0]
    monkeypatch.setattr(
        "normscope.network.measuring.attention_examples.clearest", lambda heads: heads.heads[:1]
    )
    assert with_sentence("a dog ran") == 3
    with Run(series.parent / "run.db") as run:
        maps = run.artifacts("attention")
    assert len(maps) == 3 and {tuple(found["tokens"]) for found in maps.values()} == {("a", "dog", "ran")}


def test_finished_steps_are_kept_when_a_later_one_fails(series):
    (series / "checkpoint-100" / "config.json").write_text('{"model_type": "none of ours"}')
    with pytest.raises(ModelError):
        run_study(series)
    with Run(series.parent / "run.db") as run:
        assert set(run.artifacts("saturation-settings")) == {"0", "10"}


def test_homogeneity_looks_at_the_run_file_before_it_measures(series, monkeypatch):
    monkeypatch.setattr(study_module, "homogeneity", lambda *args, **options: pytest.fail("measured"))
    config = StudyConfig(run=series / "missing" / "run.db", placement=Placement("cpu"))
    with pytest.raises(UsageError, match="does not exist"):
        study_homogeneity([str(series / "checkpoint-0")], StudyText(TEXT.splitlines()), config)


def test_a_changed_config_is_measured_again(series, measured):
    run_study(series)
    measured()
    file = series / "checkpoint-0" / "config.json"
    file.write_text(file.read_text().replace('"gelu"', '"relu"'))
    run_study(series)
    assert measured() == 1


@pytest.mark.slow
def test_other_settings_replace_the_rows_of_a_step(series, measured):
    """Heads measured before would otherwise pass for those of the new measurement."""
    run_study(series)
    assert run_study(series, heads=False).heads == ()
    assert run_study(series, heads=False).heads == ()
    with Run(series.parent / "run.db") as run:
        assert len(run.table(HeadRow)) == 0 and len(run.table(SaturationRow)) == 9


def test_stages_are_recorded_apart(tmp_path):
    for number, name in enumerate(("stage1-step5", "stage2-step5")):
        save_model(tmp_path / "series" / name, seed=number)
    found = run_study(tmp_path / "series")
    assert {(row.stage, row.step) for row in (*found.layers, *found.heads)} == {("stage1", 5), ("stage2", 5)}
    assert [entry.stage for entry in found.look_ahead] == ["stage1", "stage2"]
    with Run(tmp_path / "run.db") as run:
        maps = run.artifacts("attention")
        rows = [HeadRow(*values) for values in zip(*run.table(HeadRow).columns.values(), strict=True)]
    assert {row.example_key for row in rows} == set(maps)
    keys = [row.example_key for row in rows if (row.layer, row.head) == (1, 0)]
    assert len(keys) == 2 and maps[keys[0]]["soft"] != maps[keys[1]]["soft"]


def test_models_of_different_shapes_have_their_own_baselines(tmp_path, measured):
    save_model(tmp_path / "series" / "step1")
    save_model(tmp_path / "series" / "step2", num_hidden_layers=1)
    found = run_study(tmp_path / "series", baseline=True)
    alone = study(
        [str(tmp_path / "series" / "step2")],
        StudyText(TEXT.splitlines()),
        StudyConfig(placement=Placement("cpu")),
    )
    baselines = [row.baseline for row in found.layers if row.step == 2]
    assert baselines == [row.baseline for row in alone.layers]


def test_a_changed_program_is_measured_again(tmp_path, measured):
    from tests.network.saved_models import BUILD

    (tmp_path / "helper.py").write_text("width = 8\n")
    program = tmp_path / "my_model.py"
    config = StudyConfig(run=tmp_path / "run.db", baseline=False, placement=Placement("cpu"))
    for text, expected in ((BUILD, 1), (BUILD, 0), (BUILD.replace("manual_seed(0)", "manual_seed(1)"), 1)):
        program.write_text(text)
        study([f"{program}:build"], StudyText([]), config)
        assert measured() == expected
    assert torch.is_grad_enabled()


def test_another_series_is_refused(series, tmp_path, measured):
    """Both would go to run.db by default; the models of the second would be mixed with the first's."""
    run_study(series)
    with Run(series.parent / "run.db") as run:
        before = list(run.table(SaturationRow))
    other = tmp_path / "other"
    for step in (0, 10, 20):
        save_model(other / f"checkpoint-{step}", seed=50 + step)
    measured()
    with pytest.raises(AnotherSeries, match=rf"run file of {series}, and {other} is another series.*--run"):
        run_study(other)
    assert measured() == 0
    with Run(series.parent / "run.db") as run:
        assert list(run.table(SaturationRow)) == before
    with pytest.raises(AnotherSeries, match="another series"):
        scan(other, series.parent / "run.db")
    scan(series, series.parent / "run.db").close()
    moved = series.rename(series.with_name("moved"))
    assert {row.step for row in run_study(moved).layers} == {0, 10, 100}
