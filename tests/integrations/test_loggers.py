"""Each tracker with its real package, offline; none imported unless used."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from normscope.errors import UsageError
from normscope.integrations import loggers
from tests.live.small_training import monitored, train

SAID = "the values count the body, without embeddings and output head"
pytestmark = pytest.mark.filterwarnings("ignore")  # the trackers' own


def logged(path: Path, tracker: loggers.Tracker, number: int = 3) -> dict[int, dict[str, float]]:
    """What was recorded, by step: the monitor's own latest values."""
    model, optimizer, monitor = monitored(path, loggers=[tracker], groups=("total", "role"))
    seen = {}
    with monitor:
        for step in range(1, number + 1):
            train(model, optimizer, step, first=step - 1)
            seen[monitor.step] = dict(monitor.latest)
    assert "normscope/norm/total" in seen[1] and "normscope/gradient/total" in seen[1]
    return seen


def test_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seen = logged(tmp_path / "run.db", loggers.tensorboard(tmp_path / "events"))
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    found = {event.step: event.value for event in events.Scalars("normscope/norm/total")}
    assert found.keys() == {0, 1, 2, 3}
    for step, values in seen.items():
        assert found[step] == pytest.approx(values["normscope/norm/total"], rel=1e-6)
    assert set(seen[1]) <= set(events.Tags()["scalars"])
    (tag,) = events.Tags()["tensors"]
    (event,) = events.Tensors(tag)
    assert tag.startswith(loggers.SCOPE) and event.tensor_proto.string_val == [SAID.encode()]


def test_a_tracker_that_cannot_be_told_the_scope_still_gets_the_values(tmp_path, caplog) -> None:
    seen: list[int] = []

    def refuse(sentence: str) -> None:
        raise OSError("no texts here")

    logged(tmp_path / "run.db", loggers.Tracker("odd", lambda values, step: seen.append(step), refuse))
    assert seen == [0, 1, 2, 3] and caplog.text.count("no texts here") == 1


def test_what_is_logged_reaches_tensorboard_also_if_it_is_not_finite(tmp_path: Path) -> None:
    events = tmp_path / "events"
    model, optimizer, monitor = monitored(tmp_path / "run.db", loggers=[loggers.tensorboard(events)])
    with monitor:
        for step, loss in enumerate((3.0, float("nan"), 1.0), start=1):
            train(model, optimizer, step, first=step - 1)
            monitor.log(loss=loss, tokens=100 * step)
    found = scalars(events)
    assert found["normscope/loss"] == pytest.approx({1: 3.0, 2: float("nan"), 3: 1.0}, nan_ok=True)
    assert found["normscope/tokens"] == {1: 100, 2: 200, 3: 300}


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """The scalars of one folder by tag and step, as TensorBoard reads them while they are written."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: {e.step: e.value for e in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


@pytest.mark.parametrize("shared", ["folder", "writer"])
def test_tensorboard_goes_on_reading_the_loops_own_writer(tmp_path: Path, shared: str) -> None:
    """Of two files that grow in one folder, TensorBoard left the first for the second."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "events")) as writer:
        tracker = loggers.tensorboard(tmp_path / "events" if shared == "folder" else writer)
        model, optimizer, monitor = monitored(tmp_path / "run.db", loggers=[tracker])
        reader = EventAccumulator(str(tmp_path / "events"))
        with monitor:
            for step in range(1, 6):
                train(model, optimizer, step, first=step - 1)
                monitor.flush()
                writer.add_scalar("loss", 1 / step, step)
                writer.flush()
                reader.Reload()
    assert [event.step for event in reader.Scalars("loss")] == [1, 2, 3, 4, 5]
    ours = tmp_path / "events" / ("normscope" if shared == "folder" else "")
    assert set(scalars(ours)["normscope/norm/total"]) == {0, 1, 2, 3, 4, 5}


def test_a_resumed_training_continues_in_its_own_tensorboard_folder(tmp_path: Path) -> None:
    for path in ("one.db", "two.db"):
        logged(tmp_path / path, loggers.tensorboard(tmp_path / "events"))
    assert not (tmp_path / "events" / "normscope").exists()


def test_a_measure_of_values_that_are_not_finite_is_nan_with_their_number(tmp_path: Path) -> None:
    model, optimizer, monitor = monitored(tmp_path / "run.db", alarms=False, groups=("total", "tensor"))
    with monitor:
        train(model, optimizer, 1)
        assert not any("nonfinite" in key for key in monitor.latest)
        for measure in ("norm", "update", "alignment", "gradient"):
            values = monitor.latest
            assert values[f"normscope/{measure}/scope/body"] == values[f"normscope/{measure}/total"]
        with torch.no_grad():
            model.frozen.weight[0, :2] = float("nan")
        train(model, optimizer, 2, first=1)
        latest = monitor.latest
    for key in ("norm/total", "norm/scope/body", "norm/scope/all", "norm/tensor/frozen.weight"):
        assert math.isnan(latest[f"normscope/{key}"])
    assert latest["normscope/nonfinite/tensor/frozen.weight"] == 2
    assert latest["normscope/norm/tensor/never"] == pytest.approx(2**0.5)


@pytest.mark.slow
def test_mlflow(tmp_path: Path) -> None:
    """The loop's metrics keep their own steps, and a run that is opened later is not written to."""
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    with mlflow.start_run() as run:
        model, optimizer, monitor = monitored(tmp_path / "run.db", loggers=[loggers.mlflow()])
        seen = {}
        with monitor:
            for step in range(1, 4):
                train(model, optimizer, step, first=step - 1)
                monitor.log(loss=float("nan") if step == 2 else 1.0)
                mlflow.log_metric("loss", 1 / step, step=100 * step)
                mlflow.log_metric("unnumbered", step)
                seen[step] = monitor.latest["normscope/norm/total"]
    client = mlflow.MlflowClient()

    def history(name: str) -> dict[int, float]:
        return {m.step: m.value for m in client.get_metric_history(run.info.run_id, name)}

    assert mlflow.get_run(run.info.run_id).data.tags[loggers.SCOPE] == SAID
    assert {k: v for k, v in history("normscope/norm/total").items() if k} == pytest.approx(seen)
    assert history("loss") == pytest.approx({100: 1.0, 200: 1 / 2, 300: 1 / 3})
    assert [m.step for m in client.get_metric_history(run.info.run_id, "unnumbered")] == [0, 0, 0]
    assert history("normscope/loss") == pytest.approx({1: 1.0, 2: float("nan"), 3: 1.0}, nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("numbered", [False, True], ids=["implicit", "explicit"])
@pytest.mark.parametrize("alone", [False, True], ids=["together", "alone"])
def test_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool, numbered: bool) -> None:
    """The loop's implicit steps are counted as without us: every third optimizer step, 0, 1, 2, …."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    project, seen = f"normscope-{tmp_path.name}", {}
    run = trackio.init(project=project, name="one", embed=False)
    model, optimizer, monitor = monitored(tmp_path / "run.db", loggers=[loggers.trackio(alone=alone)])
    with monitor:
        for step in range(1, 10):
            train(model, optimizer, step, first=step - 1)
            monitor.flush()
            seen[step] = monitor.latest["normscope/norm/total"]
            if step % 3 == 0 and not alone:
                trackio.log({"loss": 1 / step}, step=10 * step if numbered else None)
    run.finish()
    logs = SQLiteStorage.get_logs(project, "one")
    assert SQLiteStorage.get_run_config(project, "one")[loggers.SCOPE] == SAID
    theirs = [row["step"] for row in logs if "loss" in row]
    assert theirs == ([] if alone else [30, 60, 90] if numbered else [0, 1, 2])
    ours = {row["normscope/step"]: row for row in logs if "normscope/step" in row}
    assert {step: row["normscope/norm/total"] for step, row in ours.items() if step} == pytest.approx(seen)
    if alone:
        assert [row["step"] for row in ours.values()] == list(ours)


def test_no_active_run_is_an_error_before_training() -> None:
    with pytest.raises(UsageError, match=r"wandb\.init"):
        loggers.wandb()


def test_no_tracker_is_imported_unless_used() -> None:
    code = (
        "import sys, normscope.live.monitor, normscope.integrations.loggers\n"
        "heavy = 'tensorboard', 'wandb', 'mlflow', 'trackio', 'lightning', 'transformers'\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
