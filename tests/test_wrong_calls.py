"""Nothing is ignored, and every mistake is answered with a sentence that says what was expected."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import normscope as ns
from normscope import errors
from normscope.errors import RunFileError, SeriesError, UsageError

STEPS = np.arange(0, 2001, 100)
VALUES = 3 + np.sqrt(STEPS) + np.random.default_rng(0).normal(0, 0.02, len(STEPS))
SERIES_OPTIONS = {"since": (None, "100", 1.5, [1], float("nan")), "until": ("100", 1.5, [1])}
NAMES = {"measure": ("", 3, ["norm"]), "scope": ("", "boddy", 3), "stage": ("nope", 3)}
READERS = {
    "series": ns.series,
    "fit_growth": ns.fit_growth,
    "fit_groups": ns.fit_groups,
    "norm_budget": ns.norm_budget,
    "forecast": lambda source, **options: ns.forecast(source, 10_000, **options),
    "compare": lambda source, **options: ns.compare(source, source, **options),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("wrong") / "series"
    made.mkdir()
    for step in STEPS:
        weights = np.random.default_rng(0).normal(size=(4, 4)) * (1 + np.sqrt(step))
        np.savez(
            made / f"step_{step}.npz", **{f"transformer.h.{i}.mlp.c_fc.weight": weights for i in range(2)}
        )
    return made


@pytest.fixture(scope="module")
def path(folder):
    with ns.scan(folder, folder.parent / "run.db") as run:
        return run.path


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


@pytest.fixture(scope="module")
def batch():
    return torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(0))


# -- functions that read a run ----------------------------------------------------------


@pytest.mark.parametrize("option", [*SERIES_OPTIONS, *NAMES])
@pytest.mark.parametrize("name", READERS)
def test_wrong_values_of_series_options_are_refused(name, option, path):
    if name == "norm_budget" and option == "measure":
        return
    for value in (SERIES_OPTIONS | NAMES)[option]:
        with pytest.raises(UsageError, match=str(option)):
            READERS[name](path, **{option: value})


@pytest.mark.parametrize("name", ["fit_growth", "fit_groups", "compare"])
@pytest.mark.parametrize("seed", [None, "x", 1.5, -1, 2**80])
def test_wrong_seeds_are_refused(name, seed, path):
    with pytest.raises(UsageError, match="seed must be an integer"):
        READERS[name](path, seed=seed)


def test_numpy_integers_and_whole_floats_are_steps(path):
    (plain,) = ns.series(path, since=300, until=900)
    for since, until in ((np.int64(300), np.int32(900)), (300.0, 9e2)):
        assert ns.series(path, since=since, until=until)[0] == plain
    assert ns.forecast(path, 1e4).to == ns.forecast(path, np.int64(10_000)).to == 10_000


@pytest.mark.parametrize("progress", [None, 3, "tqdm"])
def test_a_progress_that_cannot_be_called_is_refused_before_any_work(progress, path, folder, tmp_path):
    for call in (
        lambda: ns.fit_growth(path, progress=progress),
        lambda: ns.scan(folder, tmp_path / "new.db", progress=progress),
        lambda: ns.audit(folder, progress=progress),
        lambda: ns.train(ns.TrainConfig(steps=1), tmp_path / "out", progress=progress),
    ):
        with pytest.raises(UsageError, match="progress must be a function"):
            call()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("source", [None, 3, {1: 2}, b"run.db", np.zeros((2, 3))], ids=repr)
@pytest.mark.parametrize("name", [*READERS, "audit"])
def test_what_is_not_a_source_is_refused(name, source):
    with pytest.raises(UsageError):
        (READERS | {"audit": ns.audit})[name](source)


def test_empty_series_are_one_sentence(tmp_path):
    for call in (ns.series, ns.fit_growth, ns.plot, lambda source: ns.report(source, tmp_path / "r.html")):
        with pytest.raises(SeriesError, match="has no points"):
            call(([], []))
    with pytest.raises(UsageError, match="nothing to draw"):
        ns.plot(ns.Series("none", [], []))


def test_an_open_run_can_be_audited(path):
    with ns.Run(path) as run:
        assert ns.audit(run) == ns.audit(path) == ns.audit(str(path))
        with pytest.raises(UsageError, match="`steps` cannot be used with the run file"):
            ns.audit(run, steps=[1])
    with pytest.raises(RunFileError, match="closed"):
        ns.audit(run)


def test_a_result_says_which_measure_it_is_about(tmp_path):
    losses = tmp_path / "losses.csv"
    losses.write_text("step,loss\n" + "".join(f"{s},{v}\n" for s, v in zip(STEPS, VALUES, strict=True)))
    assert ns.fit_groups(losses, by="total", measure="loss").measure == "loss"
    assert ns.compare(losses, losses, measure="loss").measure == "loss"
    assert ns.compare(ns.series(losses, "loss")[0], "t5-base").measure == "loss and norm"
    assert ns.compare((STEPS, VALUES), (STEPS, VALUES)).measure == "value"


# -- forecasts -------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [None, {}, "cosine"])
def test_a_plan_is_a_plan(plan):
    with pytest.raises(UsageError, match="plan must be a Plan"):
        ns.forecast("t5-base", 600_000, plan)


@pytest.mark.parametrize(
    "wrong",
    [{"lr": "x"}, {"lr": -1}, {"weight_decay": [1]}, {"schedule": 3}, {"momentum": 1}, {"momentum": "x"}],
    ids=repr,
)
def test_wrong_plans_are_refused_at_once(wrong):
    with pytest.raises(UsageError, match=f"{next(iter(wrong))} must be"):
        ns.Plan(**wrong)


def test_a_plan_that_changes_nothing_is_refused():
    with pytest.raises(TypeError, match="seed"):
        ns.Plan(seed=3)  # a forecast uses no random numbers
    with pytest.raises(UsageError, match=r"momentum=0\.5 has no effect"):
        ns.forecast("t5-base", 600_000, ns.Plan(lr=1e-3, momentum=0.5))
    with pytest.raises(UsageError, match="predict the norm, not cosine"):
        ns.forecast(ns.Series("c", STEPS, VALUES, unit="cosine"), 600_000, ns.Plan(lr=1e-3))


def test_a_forecast_needs_a_step_or_a_threshold():
    with pytest.raises(UsageError, match="give the step to forecast"):
        ns.forecast("t5-base")


@pytest.mark.parametrize("to", ["x", 1.5, float("nan"), float("inf")])
def test_the_step_of_a_forecast_is_an_integer(to):
    with pytest.raises(UsageError, match="to must be an integer"):
        ns.forecast("t5-base", to)


@pytest.mark.parametrize(
    "wrong",
    [([0, 1], [1], [1]), (0, 1, 1), ("a", "b", "c"), ([1, 0], [1, 1], [0, 0]), ([], [], [])],
    ids=repr,
)
def test_wrong_rates_are_refused_at_once(wrong):
    with pytest.raises((UsageError, SeriesError), match="rates"):
        ns.Rates(*wrong)


def test_rates_are_rates(path):
    with pytest.raises(UsageError, match="rates must be a Rates"):
        ns.norm_budget(path, rates={})
    assert ns.Rates.of_run(path) is None
    with pytest.raises(UsageError, match="only a run file"):
        ns.Rates.of_run("t5-base")


# -- scans and monitors -------------------------------------------------------------------


def test_steps_may_be_numpy_integers(folder, tmp_path):
    """SQLite would store NumPy's integers as bytes, and nothing could read them."""
    with ns.scan(folder, tmp_path / "run.db", steps=np.arange(len(STEPS))) as run:
        kinds = run.query(
            "SELECT DISTINCT typeof(step) FROM weight UNION SELECT typeof(step) FROM checkpoint"
        )
        assert kinds == [("integer",)]
    options = ns.MonitorOptions(step=np.int64(3))
    assert type(options.step) is int


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 5},
        {"steps": "abc"},
        {"steps": ["a"] * len(STEPS)},
        {"steps": [-1] * len(STEPS)},
        {"skip": 3},
        {"skip": [3]},
        {"workers": "2"},
        {"workers": 1.5},
        {"engine": "nowhere:1"},
        {"config": {}},
        {"config": ns.ScanConfig(), "steps": [1]},
        {"config": ns.ScanConfig(), "skip": []},
    ],
    ids=repr,
)
def test_wrong_scans_leave_no_file(wrong, folder, tmp_path):
    with pytest.raises(UsageError):
        ns.scan(folder, tmp_path / "run.db", **wrong)
    assert not (tmp_path / "run.db").exists()


@pytest.mark.parametrize("source", [None, 3, [None], b"x", "", []], ids=repr)
def test_what_is_not_a_checkpoint_is_refused(source, tmp_path):
    with pytest.raises(UsageError):
        ns.scan(source, tmp_path / "run.db")


def test_a_scan_writes_to_a_path(folder, path):
    with ns.Run(path) as run, pytest.raises(UsageError, match="run must be the path of a run file"):
        ns.scan(folder, run)


@pytest.mark.parametrize(
    "wrong", [{"model": None}, {"options": None}, {"options": {}}, {"schedule": "log:10"}], ids=repr
)
def test_wrong_monitors_are_refused(wrong, tmp_path):
    model = torch.nn.Linear(2, 1)
    call = {"model": model, "optimizer": torch.optim.SGD(model.parameters()), "run": tmp_path / "run.db"}
    with pytest.raises(UsageError, match=f"{next(iter(wrong))} must"):
        ns.Monitor(**(call | wrong))


def test_a_run_open_for_reading_says_so(path):
    with ns.Run(path) as run:
        with pytest.raises(RunFileError, match="open for reading"), run.transaction():
            pass
        with pytest.raises(RunFileError, match="cannot write"):
            run.set_meta("key", 1)
        with pytest.raises(UsageError, match="a table for each of"):
            run.table(int)
    with pytest.raises(RunFileError, match="cannot write"):
        run.set_meta("key", 1)


# -- networks ------------------------------------------------------------------------------


MEASUREMENTS = {
    "saturation": ns.saturation,
    "heads": ns.heads,
    "both": ns.saturation_and_heads,
    "homogeneity": ns.homogeneity,
    "looks_ahead": ns.looks_ahead,
}


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_only_modules_are_measured(name, model, batch):
    for wrong in (None, "bert", torch.nn.Linear):
        with pytest.raises(UsageError, match="model must be a Module"):
            MEASUREMENTS[name](wrong, batch)
    for wrong in (None, 3, "text"):
        with pytest.raises(UsageError, match="batch"):
            MEASUREMENTS[name](model, wrong)


@pytest.mark.parametrize("baseline", ["randm", True, 3])
def test_an_unknown_baseline_is_refused(baseline, model, batch):
    with pytest.raises(UsageError, match="baseline must be 'random', a model, or None"):
        ns.saturation(model, batch, baseline=baseline)


def test_a_baseline_without_common_layers_is_refused(model, batch):
    other = torch.nn.Sequential(model)
    with pytest.raises(UsageError, match="no layer of the same name"):
        ns.saturation(model, batch, baseline=other)


def test_options_of_networks_have_their_kind(model, batch):
    for call in (
        lambda: ns.saturation(model, batch, limit=1024),
        lambda: ns.homogeneity(model, batch, curve=None),
        lambda: ns.heads(model, batch, types={}),
        lambda: ns.heads(model, batch, scale=1),
        lambda: ns.heads(model, batch, scale="x"),
        lambda: ns.heads(model, batch).strongest("argmx"),
        lambda: ns.random_like(model, seed="x"),
        lambda: ns.looks_ahead(model, batch, seed=1.5),
        lambda: ns.Limit(scales=1024),
        lambda: ns.Limit(scales=(1024, 1024)),
        lambda: ns.Limit(tolerance="x"),
        lambda: ns.Curve(scales=(1, -3, 5)),
        lambda: ns.Curve(scales=(1, 2, float("inf"))),
        lambda: ns.Curve(scales="1:10"),
        lambda: ns.Curve(at=3),
        lambda: ns.Curve(reference=None),
        lambda: ns.HeadTypes(argmax_split=None),
    ):
        with pytest.raises(UsageError):
            call()
    assert ns.looks_ahead(model, batch, seed=np.int64(2)) == ns.looks_ahead(model, batch, seed=2)


def test_ties_belong_to_exact_attention(model):
    with pytest.raises(UsageError, match="ties has no effect"), ns.saturated(model, ties=0.5):
        pass
    with pytest.raises(UsageError, match="ties must be"), ns.saturated(model, attention="exact", ties=-1):
        pass


def test_a_mask_of_ones_and_zeros_is_a_mask(model, batch):
    """As an index, a mask of integers would select the first two tokens again and again."""
    real = torch.ones(4, 6, dtype=torch.bool)
    real[:, 4:] = False
    masks = (real, real.long(), real.float())
    found = [ns.saturation(model, ns.Batch((batch,), mask=mask)) for mask in masks]
    assert found[0] == found[1] == found[2]
    for wrong in ([1], torch.ones(3)):
        with pytest.raises(UsageError, match="mask must be a bool tensor"):
            ns.Batch((batch,), mask=wrong)


# -- the lab ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (ns.TrainConfig, {"steps": "x"}),
        (ns.TrainConfig, {"steps": 1.5}),
        (ns.TrainConfig, {"seed": None}),
        (ns.TrainConfig, {"seed": -1}),
        (ns.TrainConfig, {"save": 3}),
        (ns.TrainConfig, {"model": {}}),
        (ns.TrainConfig, {"data": None}),
        (ns.OptimizerConfig, {"lr": None}),
        (ns.OptimizerConfig, {"beta1": 2}),
        (ns.OptimizerConfig, {"clip": -1}),
        (ns.DataConfig, {"length": 1.5}),
        (ns.DataConfig, {"text": None}),
        (ns.ModelConfig, {"n_layers": "x"}),
        (ns.SweepConfig, {"base": {}}),
        (ns.SweepConfig, {"cells": {"lr": [1, 2]}}),
        (ns.SweepConfig, {"cells": [3]}),
    ],
    ids=repr,
)
def test_wrong_configs_are_refused_at_once(kind, wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        kind(**wrong)


def test_configs_hold_what_they_declare():
    config = ns.TrainConfig(steps=np.int64(3), save="log:3", optimization=ns.OptimizerConfig(lr=1))
    assert (type(config.steps), config.save, type(config.optimization.lr)) == (int, ns.logarithmic(3), float)
    assert ns.TrainConfig(seed=2**60 + 1).seed == 2**60 + 1


@pytest.mark.parametrize(
    "config",
    [
        ns.TrainConfig(optimization=ns.OptimizerConfig(momentum=0.5)),
        ns.TrainConfig(data=ns.DataConfig(vocabulary=512)),
        ns.TrainConfig(model=ns.ModelConfig(vocab_size=99)),
    ],
    ids=["momentum", "vocabulary", "vocab_size"],
)
def test_fields_without_effect_are_refused_in_python_too(config, tmp_path):
    with pytest.raises(UsageError, match="has no effect here"):
        ns.train(config, tmp_path / "out")
    with pytest.raises(UsageError, match="has no effect here"):
        ns.sweep(ns.SweepConfig(config, [{"lr": 1e-3}]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "wrong", [{"config": None}, {"config": {}}, {"callbacks": 3}, {"callbacks": [print]}], ids=repr
)
def test_wrong_trainings_are_refused(wrong, tmp_path):
    with pytest.raises(UsageError):
        ns.train(**({"config": ns.TrainConfig(steps=1), "output": tmp_path / "out"} | wrong))
    assert not (tmp_path / "out").exists()


def test_an_unknown_device_is_refused(tmp_path):
    with pytest.raises(UsageError, match="device 'nope' cannot be used here"):
        ns.train(ns.TrainConfig(steps=1, device="nope"), tmp_path)


def test_errors_travel_between_processes():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    for kind in kinds:
        error = kind("rich", "cli", "progress") if kind is errors.MissingExtra else kind("why")
        other = pickle.loads(pickle.dumps(error))
        assert (type(other), str(other)) == (kind, str(error))


# -- figures and types -----------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"width": 0}, {"width": "x"}, {"width": None}, {"show": ["a"]}], ids=repr)
def test_wrong_figures_are_refused(wrong):
    with pytest.raises(UsageError, match=f"{next(iter(wrong))} must be"):
        ns.plot("t5-base", **wrong)


def test_steps_and_values_can_be_drawn():
    assert len(ns.plot((STEPS, VALUES)).data[0].x) == len(STEPS)


def test_a_typed_script_that_uses_the_whole_api():
    """Everything a caller has to name in strictly typed code is in `normscope`."""
    script = Path(__file__).parent / "typed_user_script.py"
    used = set(ns.__all__) - {"Every", "Logarithmic", "AtSteps", "Budget"}  # made by functions
    text = script.read_text("utf-8")
    missing = {name for name in used if f"ns.{name}" not in text}
    rows = {"HeadRow", "SaturationRow", "MeasureRow", "OptimizerRow", "AttentionRow", "ActivationRow"}
    assert missing <= {*rows, "Alarm", "MonitorFields"}
    check_types(script, "--strict")  # with the project's settings: what `make types` has found is used again


@pytest.mark.slow
def test_a_typed_script_where_no_settings_of_ours_are():
    check_types(Path(__file__).parent / "typed_user_script.py", "--strict", "--config-file=")


def check_types(script, *options):
    command = [sys.executable, "-m", "mypy", *options, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, cwd=script.parent.parent)
    assert done.returncode == 0, done.stdout
