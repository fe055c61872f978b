"""Each tracker with its real package, offline; none imported unless used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.slow
def test_mlflow(tmp_path: Path) -> None:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    with mlflow.start_run() as run:
        seen = logged(tmp_path / "run.db", loggers.mlflow())
    assert mlflow.get_run(run.info.run_id).data.tags[loggers.SCOPE] == SAID
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "normscope/norm/total")
    assert {m.step: m.value for m in history if m.step} == pytest.approx(
        {step: values["normscope/norm/total"] for step, values in seen.items()}
    )


@pytest.mark.slow
def test_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    import trackio

    trackio.init(project="normscope-test", name="one", embed=False)
    seen = logged(tmp_path / "run.db", loggers.trackio())
    trackio.finish()
    from trackio.sqlite_storage import SQLiteStorage

    logs = SQLiteStorage.get_logs("normscope-test", "one")
    assert SQLiteStorage.get_run_config("normscope-test", "one")[loggers.SCOPE] == SAID
    found = {row["step"]: row["normscope/norm/total"] for row in logs}
    assert found.keys() == {0, 1, 2, 3}
    assert found[3] == pytest.approx(seen[3]["normscope/norm/total"])


@pytest.mark.slow
def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(project="normscope-test", mode="offline", dir=str(tmp_path))
    seen = logged(tmp_path / "run.db", loggers.wandb())
    summary, config = dict(run.summary), dict(run.config)
    run.finish()
    assert summary["normscope/norm/total"] == pytest.approx(seen[3]["normscope/norm/total"])
    assert summary["normscope/step"] == 3 and config[loggers.SCOPE] == SAID
    assert {"normscope/norm/scope/body", "normscope/norm/scope/all"} <= set(summary)


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
