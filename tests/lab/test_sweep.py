"""Sweeps on local processes: complete, resumable, and failing cells are results."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pytest

from normscope.engines.pool import LocalExecutor
from normscope.errors import TrainingError, UsageError
from normscope.lab.sweep.outcome import thinned
from normscope.lab.sweep.sweep import SweepConfig, read_sweep, sweep
from normscope.lab.training.checkpointing import load_model
from normscope.theory.dynamics.growth_boundary import predicted_growth
from tests.lab.sweeping import essence, recorded, small_sweep


@pytest.fixture(scope="module")
def pool():
    with LocalExecutor(2) as executor:
        yield executor


@pytest.fixture(scope="module")
def finished(tmp_path_factory, pool):
    return sweep(small_sweep(), tmp_path_factory.mktemp("sweep"), engine=pool)


@pytest.mark.slow
def test_every_cell_has_its_result(finished):
    assert finished.counts == {"done": 4}
    assert [tuple(cell["changes"].values()) for cell in finished.cells] == [
        (1e-3, 0.0), (1e-3, 0.1), (1e-2, 0.0), (1e-2, 0.1)
    ]  # fmt: skip
    for cell in finished.cells:
        assert cell["lr"] == cell["changes"]["lr"] == pytest.approx(cell["mean_lr"])
        assert cell["curves"]["norm"][0] == [0, cell["norm_start"]]
        assert cell["curves"]["norm"][-1] == [20, cell["norm_end"]]
        assert cell["curves"]["loss"][-1] == [20, cell["loss"]]
        assert cell["norm_start"] > cell["body_norm_start"] > 0
        assert cell["evaluation"]["valid_loss"] == cell["curves"]["valid_loss"][-1][1] > 0
        assert not (finished.out / "cells" / cell["id"] / "state.pt").exists()
        assert not (finished.out / "cells" / cell["id"] / "checkpoints").exists()
    assert len({cell["norm_start"] for cell in finished.cells}) == 1  # the same seed
    assert list(finished.table["weight_decay"]) == [0.0, 0.1, 0.0, 0.1]
    assert "<p>4 cells: 4 done</p>" in finished._repr_html_()


def test_update_size_and_radial_part_explain_the_norm(tmp_path, pool):
    """ρ²ₜ₊₁ = (1−ηλ)²ρ²ₜ + 2η(1−ηλ)ρₜ·r + η²u², exactly, at every step."""
    result = sweep(small_sweep(lrs=[1e-2], decays=[0.3]), tmp_path, engine=pool)
    lr, decay = 1e-2, 0.3
    for name in ("", "body_"):
        rows = {(step, what): value for step, what, value in recorded(result)[result.cells[0]["id"]]}
        for step in range(1, 21):
            before, after = rows[step - 1, f"{name}norm"], rows[step, f"{name}norm"]
            update, radial = rows[step, f"{name}update"], rows[step, f"{name}radial"]
            shrunk = (1 - lr * decay) * before
            assert after**2 == pytest.approx(
                shrunk**2 + 2 * lr * shrunk * radial + (lr * update) ** 2, rel=1e-6
            )


def test_the_recursion_explains_which_cells_grow(tmp_path, pool):
    """Weight decay from none to most: the means of each cell give the sign of its change."""
    result = sweep(small_sweep(lrs=[3e-3, 1e-2], decays=[0.0, 1.0, 30.0]), tmp_path, engine=pool)
    for scope, norm in (("body", "body_norm"), ("all", "norm")):
        changes = [math.log2(cell[f"{norm}_end"] / cell[f"{norm}_start"]) for cell in result.cells]
        assert min(changes) < 0 < max(changes)
        predicted = [predicted_growth(cell, scope) for cell in result.cells]
        assert predicted == pytest.approx(changes, rel=0.15, abs=0.03)
        assert [value > 0 for value in predicted] == [value > 0 for value in changes]


@pytest.mark.parametrize(
    "kind", [ThreadPoolExecutor, pytest.param(ProcessPoolExecutor, marks=pytest.mark.slow)]
)
def test_any_executor_gives_the_same_numbers(tmp_path, finished, kind):
    options = {} if kind is ThreadPoolExecutor else {"mp_context": get_context("spawn")}
    with kind(1, **options) as executor:
        other = sweep(small_sweep(), tmp_path, engine=executor)
    assert essence(other) == essence(finished)
    assert recorded(other) == recorded(finished)


def test_a_finished_sweep_is_only_read_and_grows_by_what_is_new(finished, tmp_path):
    class Refusing(ThreadPoolExecutor):
        def submit(self, *args, **kwargs):
            raise AssertionError("nothing is left to do")

    with Refusing(1) as executor:
        assert essence(sweep(small_sweep(), finished.out, engine=executor)) == essence(finished)
    stamps = {p: p.stat().st_mtime_ns for p in finished.out.glob("cells/*/run.db")}
    grown = sweep(small_sweep(lrs=(1e-3, 1e-2, 1e-4)), finished.out, engine=ThreadPoolExecutor(1))
    assert grown.counts == {"done": 6}
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    with pytest.raises(UsageError, match=r"another base config \(steps is 20 there and 21 now\)"):
        sweep(small_sweep(steps=21), finished.out, engine=executor)


def test_divergence_and_failure_are_results(tmp_path, pool):
    (tmp_path / "short.txt").write_text("x" * 1000)
    base = small_sweep().base
    cells = [{"lr": 1e-3}, {"lr": 1e30, "optimizer": "sgd"}, {"max_length": 10**12}]
    result = sweep(SweepConfig(base, cells), tmp_path / "out", engine=pool)
    assert result.counts == {"done": 1, "diverged": 1, "failed": 1}
    by_status = {cell["status"]: cell for cell in result.cells}
    assert "the loss became" in by_status["diverged"]["error"]
    assert math.isfinite(by_status["diverged"]["norm_start"])
    assert by_status["failed"]["error"]
    failed = tmp_path / "out" / "cells" / by_status["failed"]["id"] / "result.json"
    stamp = failed.stat().st_mtime_ns
    sweep(SweepConfig(base, cells), tmp_path / "out", engine=pool)
    assert failed.stat().st_mtime_ns == stamp
    sweep(SweepConfig(base, cells, retry=True), tmp_path / "out", engine=pool)
    assert failed.stat().st_mtime_ns > stamp
    json.dumps(read_sweep(tmp_path / "out").cells, allow_nan=False)


def test_a_broken_engine_loses_nothing(tmp_path, finished):
    class Breaking(ThreadPoolExecutor):
        def submit(self, function, job, shared):
            from concurrent.futures import BrokenExecutor, Future

            if "0.01" not in job.cell.id:
                return super().submit(function, job, shared)
            broken: Future[object] = Future()
            broken.set_exception(BrokenExecutor())
            return broken

    with (
        Breaking(1) as executor,
        pytest.raises(TrainingError, match="2 cells have no result: run the same sweep again"),
    ):
        sweep(small_sweep(), tmp_path, engine=executor)
    assert read_sweep(tmp_path).counts == {"done": 2}
    with ThreadPoolExecutor(1) as executor:
        assert essence(sweep(small_sweep(), tmp_path, engine=executor)) == essence(finished)


def test_checkpoints_are_kept_on_request(tmp_path, pool):
    wanted = small_sweep(lrs=[1e-3], decays=[0])
    result = sweep(SweepConfig(wanted.base, [{"lr": 1e-3, "save": "every:10"}]), tmp_path, engine=pool)
    folders = sorted((tmp_path / "cells" / result.cells[0]["id"] / "checkpoints").iterdir())
    assert [folder.name for folder in folders] == ["step-000000", "step-000010", "step-000020"]
    load_model(folders[-1])


SCRIPT = """
import sys
from normscope.lab.sweep.sweep import sweep
from tests.lab.sweeping import small_sweep
sweep(small_sweep(steps=100), sys.argv[1], engine="local:1")
"""


@pytest.mark.slow
def test_a_killed_sweep_continues(tmp_path, pool):
    """SIGKILL to the sweeping process in the middle: its workers end, the rest is done once."""
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, tmp_path / "killed"], start_new_session=True)
    results = tmp_path / "killed" / "cells"
    deadline = time.monotonic() + 120
    while not list(results.glob("*/result.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    early = {path: path.stat().st_mtime_ns for path in results.glob("*/result.json")}
    resumed = sweep(small_sweep(steps=100), tmp_path / "killed", engine=pool)
    whole = sweep(small_sweep(steps=100), tmp_path / "whole", engine=pool)
    assert essence(resumed) == essence(whole)
    assert recorded(resumed) == recorded(whole)
    assert early
    assert {path: path.stat().st_mtime_ns for path in early} == early


def test_thinning_keeps_the_ends():
    points = [(i, float(i)) for i in range(1000)]
    assert len(thinned(points)) == 100
    assert (thinned(points)[0], thinned(points)[-1]) == (points[0], points[-1])
    assert thinned(points[:5]) == points[:5]
