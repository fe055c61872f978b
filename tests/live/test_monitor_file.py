"""Which run files a monitor takes, what resuming deletes from them, and that nothing else is deleted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_model, save_model
from torch import nn

from normscope.errors import AnotherSeries, RunFileBusy, UsageError
from normscope.live.monitor import Monitor
from normscope.live.monitor_options import MonitorOptions
from normscope.live.writing.resuming import delete_live_after
from normscope.remarks import unsound_sentence
from normscope.run import CheckpointRow, Run, SaturationRow, ScalarRow
from normscope.schedule import at_steps, every
from normscope.weights.audit.audit import audit
from normscope.weights.scan.scan import scan
from tests.conftest import random_walk, save_series
from tests.groups import leave_group
from tests.live.small_training import monitored, rows, sgd, tiny, train


def steps_of(path: Path) -> set[int]:
    return {step for step, _ in rows(path)}


def lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def dump(path: Path) -> list[Any]:
    tables = ("meta", "checkpoint", "tensor", "weight", "saturation", "scalar", "artifact")
    with Run(path) as run:
        return [run.query(f"SELECT * FROM {table}") for table in tables]


# -- files that are refused ------------------------------------------------------------


def recorded(folder: Path) -> tuple[Path, nn.Module]:
    """The run file of five recorded steps, and the model after them."""
    path = folder / "run.db"
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 5)
    monitor.close()
    return path, model


@pytest.mark.parametrize("step", [0, 100])
def test_a_file_with_scanned_checkpoints_is_refused(tmp_path: Path, step: int) -> None:
    path = tmp_path / "run.db"
    scan(save_series(tmp_path / "a", random_walk([0, 10, 100])), path).close()
    before = path.read_bytes()
    with pytest.raises(
        AnotherSeries, match=r"run\.db has measurements of saved checkpoints at 3 steps.* run='live\.db'"
    ):
        monitored(path, step=step)
    assert path.read_bytes() == before
    assert not lock_of(path).exists()


def test_a_file_with_studied_models_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Run.create(path) as run, run.transaction():
        run.write([SaturationRow(7, "h.0", 0, 0.5, 0.1, 100, 1024.0, True)])
    with pytest.raises(AnotherSeries, match="measurements of saved checkpoints at 1 steps"):
        monitored(path)


def test_a_file_of_another_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 3)
    monitor.close()
    before = dump(path)
    other = nn.Linear(3, 3)
    for step in (0, 2):
        with pytest.raises(AnotherSeries, match=r"records of another model, .* embedding\.weight"):
            Monitor(other, sgd(other), path, every(1), MonitorOptions(step=step))
    wider = tiny()
    wider.inner = nn.Linear(6, 6, bias=False)
    with pytest.raises(AnotherSeries, match=r"inner\.bias"):
        Monitor(wider, sgd(wider), path, every(1))
    assert dump(path) == before


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        monitored(tmp_path)


HOLDER = """
import sys
from pathlib import Path
from tests.live.small_training import monitored, train
model, optimizer, monitor = monitored(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_file_that_another_monitor_writes_is_refused_before_training(tmp_path: Path) -> None:
    """Also before the other one has recorded anything."""
    path = tmp_path / "run.db"
    command = [sys.executable, "-c", HOLDER, str(path)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        for attempt in (lambda: monitored(path), lambda: scan(tmp_path / "a", path)):
            save_series(tmp_path / "a", random_walk([0, 10]))
            with pytest.raises(RunFileBusy, match=rf"run\.db is being written by process {other.pid} on "):
                attempt()
        other.kill()
    monitored(path)[2].close()
    assert not lock_of(path).exists()


def _rank(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    model = tiny()
    try:
        Monitor(model, sgd(model), Path(folder) / "run.db")
        said = "nothing"
    except AnotherSeries as error:
        said = str(error)
    (Path(folder) / f"said-{rank}").write_text(said)
    leave_group()


@pytest.mark.slow
def test_every_rank_raises_what_rank_0_found(tmp_path: Path) -> None:
    scan(save_series(tmp_path / "a", random_walk([0, 10])), tmp_path / "run.db").close()
    mp.spawn(_rank, args=(str(tmp_path),), nprocs=2)
    said = {(tmp_path / f"said-{rank}").read_text() for rank in range(2)}
    assert len(said) == 1 and "checkpoints at 2 steps" in said.pop()


# -- resuming --------------------------------------------------------------------------


def test_resuming_deletes_only_live_rows_and_says_how_many(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The run file also has a scan of the training's own checkpoints, and their saturation."""
    path = tmp_path / "run.db"
    model, optimizer, monitor = monitored(path)
    saved = (0, 2, 4, 5)
    for step in range(7):
        if step:
            train(model, optimizer, step, first=step - 1)
            monitor.log(loss=float(step))
        if step in saved:
            (tmp_path / "c" / f"checkpoint-{step}").mkdir(parents=True)
            save_model(model, str(tmp_path / "c" / f"checkpoint-{step}" / "model.safetensors"))
    monitor.close()
    scan(tmp_path / "c", path).close()
    with Run.create(path) as run, run.transaction():
        run.write([SaturationRow(5, "h.0", 0, 0.5, 0.1, 100, 1024.0, True)])
    scanned = "SELECT step, prev_step, tensor, sumsq, dot, dot_init, absmax FROM weight WHERE origin & 2"
    with Run(path) as run:
        kept = run.query(scanned), run.checkpoints(), run.query("SELECT * FROM saturation")
        sql = "SELECT count(*) FROM weight WHERE origin = 1 AND step > 3"
        ((live,),) = run.query(sql)

    with pytest.raises(
        AnotherSeries, match=r"measurements of saved checkpoints at 4 steps.*MonitorOptions\(step="
    ):
        monitored(path)
    caplog.clear()
    model, optimizer, monitor = monitored(path, step=3)
    train(model, optimizer, 4, first=3)
    monitor.close()

    with Run(path) as run:
        assert (run.query(scanned), run.checkpoints(), run.query("SELECT * FROM saturation")) == kept
        assert {step for (step,) in run.query("SELECT DISTINCT step FROM scalar")} == {1, 2, 3}
        left = "SELECT DISTINCT step FROM weight WHERE lr NOT NULL AND step > 3"
        assert run.query(left) == [(4,)]
        note = run.meta["monitor.resumed"]
    assert f"continues from step 3: {live} live rows of 2 steps after it were deleted" in note
    assert "scanned sums of later steps (4, 5) were kept" in note
    assert caplog.text.count(note) == 1


def test_a_training_that_begins_anew_says_what_it_replaces(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, model = recorded(tmp_path)
    assert "deleted" not in caplog.text
    torch.manual_seed(99)
    other = type(model)()
    optimizer = sgd(other)
    with Monitor(other, optimizer, path, at_steps([1, 2])) as monitor:  # no record of step 0 to replace
        monitor.log_at(0, {"eval_loss": 2.0})
        train(other, optimizer, 2)
    assert steps_of(path) == {1, 2}
    assert "begins at step 0: 36 live rows of 6 steps of an earlier training were deleted" in caplog.text
    with Run(path) as run:
        assert run.query("SELECT step, name FROM scalar") == [(0, "eval_loss")]


def test_nothing_is_deleted_before_the_first_step(tmp_path: Path) -> None:
    """A script that fails before it trains costs nothing."""
    path = tmp_path / "run.db"
    model, optimizer, monitor = monitored(path)
    train(model, optimizer, 3)
    monitor.close()
    before = dump(path)
    monitored(path)[2].close()
    assert dump(path) == before


def test_other_stages_stay(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    for stage, steps in (("one", 3), ("two", 2)):
        model, optimizer, monitor = monitored(path, stage=stage)
        train(model, optimizer, steps)
        monitor.close()
    with Run(path) as run:
        assert dict(run.query("SELECT stage, max(step) FROM weight GROUP BY stage")) == {"one": 3, "two": 2}


def test_the_lock_is_held_while_the_file_cannot_be_opened(tmp_path: Path) -> None:
    """Between two attempts to write, nobody else may take the file."""
    path = tmp_path / "run.db"
    model, optimizer, monitor = monitored(path)
    assert lock_of(path).exists() and not path.exists()
    train(model, optimizer, 1)
    assert monitor.flush()
    path.unlink()
    assert lock_of(path).exists()
    monitor.close()
    assert not lock_of(path).exists()


def test_deleting_live_rows_in_a_run_file(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run.db") as run:
        with run.transaction():
            run.write(
                [CheckpointRow(9, "step9", "a/step9"), ScalarRow(0, "loss", 1.0), ScalarRow(9, "loss", 1.0)]
            )
            assert delete_live_after(run, 0) == (0, 0)
        assert len(run.checkpoints()) == 1
        assert run.query("SELECT step FROM scalar") == [(0,)]


# -- what no longer fits together after resuming -----------------------------------------


def recorded_and_saved(folder: Path) -> tuple[Path, Path]:
    """A live run of 6 steps, with checkpoints at 2, 4 and 6 that were scanned into the same file."""
    path, saved = folder / "run.db", folder / "c"
    model, optimizer, monitor = monitored(path)
    for step in range(1, 7):
        train(model, optimizer, step, first=step - 1)
        if step % 2 == 0:
            save(model, saved, step)
    monitor.close()
    scan(saved, path).close()
    return path, saved


def save(model: nn.Module, folder: Path, step: int) -> None:
    (folder / f"checkpoint-{step}").mkdir(parents=True, exist_ok=True)
    save_model(model, str(folder / f"checkpoint-{step}" / "model.safetensors"))


def resumed(path: Path, saved: Path, step: int, until: int, lr: float | None = None) -> nn.Module:
    """Continue from a checkpoint; another learning rate makes it another branch."""
    model, optimizer, monitor = monitored(path, step=step)
    load_model(model, str(saved / f"checkpoint-{step}" / "model.safetensors"))
    for group in optimizer.param_groups:
        group["lr"] = lr or group["lr"]
    train(model, optimizer, until, first=step)
    monitor.close()
    return model


def findings_of(path: Path) -> list[tuple[str, tuple[int, ...]]]:
    with Run(path) as run:
        return [(finding.kind, finding.steps) for finding in run.findings() if finding.kind == "break"]


def test_another_training_that_resumes_in_the_file_is_told_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same model and step, but the parameters are not those that were recorded."""
    path, model = recorded(tmp_path)
    torch.manual_seed(99)
    other = type(model)()
    optimizer = sgd(other)
    with Monitor(other, optimizer, path, every(1), MonitorOptions(step=3)) as monitor:
        train(other, optimizer, 5, first=3)
    assert "at step 3 are not those that were recorded there" in caplog.text
    assert findings_of(path) == [("break", (3,))]
    assert "not sound (break)" in (unsound_sentence(Run(path).findings()) or "")
    model, optimizer, monitor = monitored(path)  # from the beginning: nothing is left of either
    train(model, optimizer, 2)
    monitor.close()
    assert findings_of(path) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_training_that_resumes_from_rounded_parameters_is_the_same(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    path, model = recorded(tmp_path)
    again, optimizer, monitor = monitored(path, step=5)
    again.load_state_dict({name: value.to(dtype).float() for name, value in model.state_dict().items()})
    train(again, optimizer, 7, first=5)
    monitor.close()
    assert findings_of(path) == []


def test_checkpoints_of_an_abandoned_branch_are_named_until_they_are_saved_again(tmp_path: Path) -> None:
    path, saved = recorded_and_saved(tmp_path)
    model = resumed(path, saved, 2, until=5, lr=0.3)
    assert findings_of(path) == [("break", (4, 6))]
    assert [f.kind for f in audit(path).findings if f.kind == "break"] == ["break"]
    scan(saved, path).close()  # nothing has been saved again
    assert findings_of(path) == [("break", (4, 6))]
    save(model, saved, 4)
    save(model, saved, 6)
    scan(saved, path).close()  # most checkpoints have changed, which is what resuming does
    assert findings_of(path) == []


def test_checkpoints_of_an_abandoned_branch_that_were_deleted(tmp_path: Path) -> None:
    path, saved = recorded_and_saved(tmp_path)
    model = resumed(path, saved, 2, until=4, lr=0.3)
    save(model, saved, 4)
    shutil.rmtree(saved / "checkpoint-6")
    scan(saved, path).close()
    assert findings_of(path) == []
    with Run(path) as run:
        assert [row.step for row in run.checkpoints()] == [2, 4]
        assert run.query("SELECT count(*) FROM weight WHERE step = 6 AND absmax NOT NULL") == [(0,)]


def test_a_training_that_repeats_itself_exactly_has_abandoned_nothing(tmp_path: Path) -> None:
    path, saved = recorded_and_saved(tmp_path)
    resumed(path, saved, 2, until=6)
    assert findings_of(path) == []


def test_equal_checkpoints_that_were_saved_again_are_known_by_their_time(tmp_path: Path) -> None:
    """Nothing was recorded at their steps to compare them with."""
    path, saved = recorded_and_saved(tmp_path)
    resumed(path, saved, 2, until=3)
    assert findings_of(path) == [("break", (4, 6))]
    later = time.time() + 60
    for step in (4, 6):
        os.utime(saved / f"checkpoint-{step}" / "model.safetensors", (later, later))
    scan(saved, path).close()
    assert findings_of(path) == []
