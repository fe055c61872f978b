"""Every format, written by the library that people use for it."""

import csv
import json

import numpy as np
import pytest

import normscope as ns
from normscope.errors import SeriesError, UsageError
from normscope.theory.logs.log_registry import LOG_FORMATS, read_log
from normscope.theory.measures.log_series import log_series

STEPS = np.arange(0, 1000, 50)
NORMS = 3 + np.sqrt(STEPS)


def is_the_series(found, column="norm", rtol=0.0):
    assert found.steps.tolist() == STEPS.tolist()
    np.testing.assert_allclose(found.values, NORMS, rtol=rtol)
    assert found.unit == column and f"{column}'" in found.notes[0]
    return True


def frame(**more):
    import pandas as pd

    return pd.DataFrame({"step": STEPS, "loss": 5 - STEPS / 1000, "norm": NORMS, **more})


@pytest.mark.parametrize("separator", [",", "\t", ";"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_csv_of_pandas_with_any_delimiter_and_a_bom(tmp_path, separator, encoding):
    path = tmp_path / "log.txt"
    frame().to_csv(path, sep=separator, index=False, encoding=encoding)
    assert is_the_series(log_series(path))
    frame().to_csv(path, sep=separator, encoding=encoding)  # with pandas' index as a nameless first column
    assert is_the_series(log_series(path))


def test_csv_with_comments_blank_lines_quotes_and_windows_line_ends(tmp_path):
    path = tmp_path / "log.csv"
    rows = "".join(
        f'"{step}","{norm!r}",\r\n\r\n' for step, norm in zip(STEPS.tolist(), NORMS.tolist(), strict=True)
    )
    path.write_bytes(f'# made by hand\r\n"Step","norm",\r\n# more\r\n{rows}'.encode())
    assert is_the_series(log_series(path))


def test_wandb_chart_export(tmp_path):
    path = tmp_path / "wandb_export_2024-05-01T10_00_00.000+02_00.csv"
    names = ["Step", *(f"brave-sky-7 - norm{end}" for end in ("", "__MIN", "__MAX"))]
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows(
            [names, *([step, norm, norm, norm] for step, norm in zip(STEPS, NORMS, strict=True))]
        )
    assert is_the_series(log_series(path)) and is_the_series(log_series(path, "norm"))
    assert log_series(path, "brave-sky-7 - norm__MAX").values.tolist() == NORMS.tolist()


def test_wandb_chart_of_grouped_runs_says_that_it_is_a_mean(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("Step,Group: a - norm,Group: a - norm__MIN,Group: a - norm__MAX\n0,1,0.5,2\n1,2,2,2\n")
    assert "is a mean over several runs or steps" in " ".join(log_series(path).notes)


def test_wandb_history_export(tmp_path):
    path = tmp_path / "history.csv"
    sparse = np.where(STEPS % 100 == 0, NORMS, np.nan)
    frame(_step=STEPS, _runtime=STEPS * 1.5, _timestamp=1.7e9 + STEPS, norm=sparse).drop(
        columns="step"
    ).to_csv(path)
    found = log_series(path)
    assert found.steps.tolist() == STEPS[::2].tolist() and found.values.tolist() == NORMS[::2].tolist()
    assert found.notes == ("step column: '_step'; values: 'norm'", "10 of 20 rows have no value of 'norm'")


def test_tensorboard_csv_export_is_not_a_fit_of_the_wall_time(tmp_path):
    path = tmp_path / "run-.-tag-norm.csv"
    rows = "".join(
        f"{1.7e9 + i},{step},{norm!r}\n"
        for i, (step, norm) in enumerate(zip(STEPS, NORMS.tolist(), strict=True))
    )
    path.write_text(f"Wall time,Step,Value\n{rows}")
    assert is_the_series(log_series(path), "Value")
    assert ns.fit_growth(path).best == "sqrt"


# -- TensorBoard ------------------------------------------------------------------------------


def write_events(folder, steps=STEPS, values=NORMS, tag="param_norm", **options):
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(folder, **options.pop("writer", {})) as writer:
        writer.add_text("notes", "a text is not a scalar", 0)
        writer.add_histogram("weights", np.arange(10.0), 0)
        for step, value in zip(steps.tolist(), values.tolist(), strict=True):
            writer.add_scalar(tag, value, step, **options)
            writer.add_scalar("train/loss", 5.0 - step / 1000, step)
    return next(iter(sorted(folder.glob("events*"))))


@pytest.mark.parametrize("options", [{}, {"new_style": True}, {"double_precision": True, "new_style": True}])
def test_event_file_and_folder_of_torch(tmp_path, options):
    path = write_events(tmp_path / "logs", **options)
    for place in (path, tmp_path / "logs", tmp_path):
        assert is_the_series(
            log_series(place), "param_norm", rtol=0 if "double_precision" in options else 1e-7
        )
    assert set(read_log(path).columns) == {"param_norm", "train/loss"}


def test_tf2_scalars(tmp_path):
    """As tf.summary.scalar writes them: a tensor in tensor_content, with the plugin's name at first only."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(tmp_path))
    for step, norm in zip(STEPS.tolist(), NORMS.tolist(), strict=True):
        tensor = TensorProto(dtype="DT_FLOAT", tensor_content=np.float32(norm).tobytes())
        plugin = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
        value = Summary.Value(tag="norm", tensor=tensor, metadata=plugin if step == 0 else None)
        text = Summary.Value(tag="t", tensor=TensorProto(dtype="DT_STRING", string_val=[b"x"]))
        writer.add_event(Event(step=step, summary=Summary(value=[value, text])))
    writer.close()
    assert is_the_series(log_series(tmp_path), rtol=1e-7)


def test_our_reader_agrees_with_tensorboards_own(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rng = np.random.default_rng(0)
    steps, values = rng.integers(0, 2**40, 300).cumsum(), rng.normal(0, 1e5, 300)
    path = write_events(tmp_path, steps, values)
    expected = EventAccumulator(str(path), size_guidance={"scalars": 0}).Reload().Scalars("param_norm")
    found = log_series(path)
    assert found.steps.tolist() == [event.step for event in expected]
    assert found.values.tolist() == [event.value for event in expected]


def test_integers_halves_zeros_and_mixed_tags_in_one_file(tmp_path):
    """Whatever an event looks like, the next one that looks nearly the same is read on its own."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    kinds = {
        "int": lambda x: TensorProto(dtype="DT_INT64", int64_val=[round(x)]),
        "f16": lambda x: TensorProto(dtype="DT_HALF", half_val=[int(np.float16(x).view(np.uint16))]),
        "f32": lambda x: TensorProto(dtype="DT_FLOAT", float_val=[x]),
        "f64": lambda x: TensorProto(dtype="DT_DOUBLE", double_val=[x]),
    }
    numbers = [0.0, 1.0, -3.0, 3.0, 1.5e-3, float(2**14), -0.0, 7.0, 2.0, 2.0]
    writer = EventFileWriter(str(tmp_path))
    for step, number in enumerate(numbers):
        for tag, make in kinds.items():
            writer.add_event(
                Event(step=step, summary=Summary(value=[Summary.Value(tag=tag, tensor=make(number))]))
            )
        writer.add_event(
            Event(step=step, summary=Summary(value=[Summary.Value(tag="old", simple_value=number)]))
        )
        both = [Summary.Value(tag=tag, simple_value=number + i) for i, tag in enumerate("pq")]
        writer.add_event(Event(step=step, wall_time=1.0, summary=Summary(value=both)))
    writer.close()
    found = read_log(tmp_path).columns
    exact = {
        "int": np.int64,
        "f16": np.float16,
        "f32": np.float32,
        "f64": np.float64,
        "old": np.float32,
        "p": np.float32,
    }
    for tag, kind in exact.items():
        expected = np.rint(numbers) if kind is np.int64 else np.array(numbers).astype(kind)
        np.testing.assert_array_equal(found[tag], expected.astype(float), err_msg=tag)
    np.testing.assert_array_equal(found["q"], (np.array(numbers) + 1).astype("f4"))


def test_several_files_of_one_run_and_a_restart(tmp_path):
    write_events(tmp_path, STEPS[:12], NORMS[:12] + 7, writer={"filename_suffix": ".a"})
    path = next(tmp_path.glob("*.a"))
    path.rename(tmp_path / "events.out.tfevents.1000000000.host.1.0.a")
    write_events(tmp_path, STEPS[6:], NORMS[6:], writer={"filename_suffix": ".b"})
    found = log_series(tmp_path)
    assert found.steps.tolist() == STEPS.tolist()
    np.testing.assert_allclose(found.values, np.r_[NORMS[:6] + 7, NORMS[6:]], rtol=1e-7)
    assert any("6 points were written again after a restart" in note for note in found.notes)
    assert not any("train/loss" in note for note in found.notes)


def test_purged_steps_of_a_resumed_writer(tmp_path):
    write_events(tmp_path, STEPS[:12], NORMS[:12], writer={"filename_suffix": ".a"})
    next(tmp_path.glob("*.a")).rename(tmp_path / "events.out.tfevents.1000000000.host.1.0.a")
    write_events(tmp_path, STEPS[9:], NORMS[9:], writer={"filename_suffix": ".b", "purge_step": 300})
    assert log_series(tmp_path).steps.tolist() == [*STEPS[:6], *STEPS[9:]]


def test_event_files_of_several_runs_are_not_mixed(tmp_path):
    for name in ("a", "b"):
        write_events(tmp_path / name)
    with pytest.raises(UsageError, match="event files of 2 runs: .*a, .*b; name one"):
        log_series(tmp_path)


def test_a_live_event_file_ends_in_the_middle_of_a_record(tmp_path):
    path = write_events(tmp_path)
    whole = path.read_bytes()
    for cut in (1, 5, 20, 47):
        path.write_bytes(whole[:-cut])
        found = log_series(path)
        assert (
            found.values.tolist()
            == log_series(path).values.tolist()
            == NORMS.astype("f4").tolist()[: len(found)]
        )
        assert len(found) >= 19 and any("incomplete" in note for note in found.notes)


# -- MLflow, Hugging Face, JSON, Parquet -----------------------------------------------------------


@pytest.fixture
def mlflow_run(tmp_path, monkeypatch):
    from mlflow.entities import Metric
    from mlflow.store.tracking.file_store import FileStore

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    store = FileStore(str(tmp_path / "mlruns"))
    experiment = store.create_experiment("e")
    run = store.create_run(experiment, "me", 0, [], "r").info
    for i, (step, norm) in enumerate(zip(STEPS.tolist(), NORMS.tolist(), strict=True)):
        store.log_batch(
            run.run_id,
            [Metric("weights/norm", norm, 1700000000000 + i, step), Metric("loss", 1.0, i, step)],
            [],
            [],
        )
    return tmp_path / "mlruns" / experiment / run.run_id


def test_mlflow_file_metrics_folder_and_run_folder(mlflow_run):
    for place in (
        mlflow_run,
        mlflow_run / "metrics",
        mlflow_run / "metrics" / "weights" / "norm",
        mlflow_run.parent,
    ):
        assert is_the_series(log_series(place), "weights/norm")
    (mlflow_run / "metrics" / "weights" / "norm").write_text("1700000000000 1.0\n")
    with pytest.raises(SeriesError, match="expected 'timestamp value step', got '1700000000000 1.0'"):
        log_series(mlflow_run)


def test_mlflow_runs_are_not_mixed(mlflow_run):
    other = mlflow_run.parent / "other"
    (other / "metrics").mkdir(parents=True)
    (other / "meta.yaml").write_text("a: 1\n")
    with pytest.raises(UsageError, match="contains 2 runs"):
        log_series(mlflow_run.parent)


def write_state(folder, upto=None, **more):
    from transformers import TrainerState

    history = []
    for step, norm in list(zip(STEPS.tolist(), NORMS.tolist(), strict=True))[:upto]:
        history.append(
            {"loss": 1.0, "grad_norm": 0.5, "learning_rate": 1e-4, "epoch": step / 100, "step": step}
        )
        history.append(
            {"eval_loss": 1.0, "param_norm": norm, "eval_runtime": 3.1, "epoch": step / 100, "step": step}
        )
    folder.mkdir(parents=True, exist_ok=True)
    TrainerState(log_history=history, global_step=history[-1]["step"], **more).save_to_json(
        folder / "trainer_state.json"
    )


def test_trainer_state_of_transformers(tmp_path):
    write_state(tmp_path / "out" / "checkpoint-450", upto=10)
    write_state(tmp_path / "out" / "checkpoint-950", best_model_checkpoint="x" * 300)
    for place in ("checkpoint-950/trainer_state.json", "checkpoint-950", "."):
        assert is_the_series(log_series(tmp_path / "out" / place), "param_norm")
    assert len(log_series(tmp_path / "out" / "checkpoint-450")) == 10


def test_trainer_states_of_two_runs_in_one_folder_are_refused(tmp_path):
    write_state(tmp_path / "checkpoint-950")
    state = json.loads((tmp_path / "checkpoint-950" / "trainer_state.json").read_text())
    state["log_history"] = [{"step": 1, "param_norm": 3.0}]
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-1" / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(UsageError, match="several runs"):
        log_series(tmp_path)


def test_a_folder_with_two_kinds_of_logs_is_refused(tmp_path):
    write_state(tmp_path)
    write_events(tmp_path / "runs")
    with pytest.raises(UsageError, match="TensorBoard event files and a trainer_state.json; name one"):
        log_series(tmp_path)
    with pytest.raises(UsageError, match="folder without a log"):
        (tmp_path / "empty").mkdir()
        ns.series(tmp_path / "empty")


@pytest.mark.parametrize("orient", ["records", "lines", "columns", "list"])
def test_json_of_pandas(tmp_path, orient):
    path = tmp_path / "log"
    if orient == "list":
        path.write_text(json.dumps({"name": "x", "history": frame().to_dict("list")}, indent=1))
    else:
        frame().to_json(
            path,
            orient="records" if orient == "lines" else orient,
            lines=orient == "lines",
            double_precision=15,
        )
    assert is_the_series(log_series(path), rtol=1e-14)


def test_json_lines_with_nested_keys_missing_keys_and_words_for_numbers(tmp_path):
    path = tmp_path / "log.jsonl"
    rows = [
        {"config": {"lr": 0.1, "name": "x"}},
        {"step": 0, "weights": {"norm": 1.0}, "kind": "eval"},
        {"step": 10, "loss": 3.0},
        {"step": 20, "weights": {"norm": "NaN"}},
        {"step": 30, "weights": {"norm": "2.5"}},
        {"step": 40, "weights": {"norm": None}},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + '\n{"step": 50, "weights": {"no')
    found = log_series(path)
    assert (found.steps.tolist(), found.values.tolist()) == ([0, 30], [1.0, 2.5])
    assert found.unit == "weights.norm" and any("last line is incomplete" in note for note in found.notes)
    path.write_text("\n".join(map(json.dumps, rows[1:2])) + '\n{"step": 5\n{"step": 6}\n')
    with pytest.raises(SeriesError, match="line 2: expected a JSON object"):
        log_series(path)


@pytest.mark.parametrize("writer", ["pandas", "polars", "pyarrow"])
def test_parquet(tmp_path, writer):
    path = tmp_path / "log.parquet"
    data = frame(run=["a"] * len(STEPS), when=np.array(STEPS, dtype="datetime64[s]"))
    if writer == "pandas":
        data.set_index("step").to_parquet(path)
    elif writer == "polars":
        pytest.importorskip("polars").from_pandas(data).write_parquet(path)
    else:
        import pyarrow
        import pyarrow.parquet

        nested = [{"norm": norm} for norm in NORMS.tolist()]
        pyarrow.parquet.write_table(
            pyarrow.table({"step": STEPS, "weights": nested, "lists": [[1]] * 20}), path
        )
    assert is_the_series(log_series(path), "weights.norm" if writer == "pyarrow" else "norm")


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    import sys

    frame().to_parquet(tmp_path / "log.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"normscope\[parquet\]"):
        log_series(tmp_path / "log.parquet")


def test_formats_are_recognised_by_content_not_by_name(tmp_path):
    frame().to_parquet(tmp_path / "log.csv")
    frame().to_csv(tmp_path / "log.json", index=False)
    frame().to_json(tmp_path / "log.parquet", orient="records", double_precision=15)
    for name in ("log.csv", "log.json", "log.parquet"):
        assert is_the_series(log_series(tmp_path / name), rtol=1e-14)
    assert len({known.name for known in LOG_FORMATS}) == len(LOG_FORMATS)
