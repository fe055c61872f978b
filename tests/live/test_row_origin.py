"""Rows of a monitor and rows of a scan have the same columns, and are still told apart."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

import normscope as ns
from normscope.errors import SeriesError
from normscope.live.model.sharding import ParameterInfo
from normscope.live.writing.journal import Journal
from normscope.live.writing.journal_entries import (
    COLUMNS,
    Note,
    ParameterInventory,
    RateChanges,
    Record,
    Scalars,
)
from normscope.live.writing.resuming import Rewind, delete_live_after
from normscope.remarks import unsound_sentence
from normscope.rows import NO_PREVIOUS, OptimizerRow, RateRow, WeightRow
from normscope.run import Run
from normscope.run_files.gone_checkpoints import two_starts
from normscope.run_schema import BOTH, LIVE_ROWS, ONLY_SCANNED, SCANNED_ROWS
from normscope.weights.scan.scan import scan
from tests.conftest import random_walk, save_series

States = Mapping[int, Mapping[str, Tensor]]
STEPS = range(7)


@pytest.fixture
def walk() -> States:
    found: States = random_walk(list(STEPS))
    return found


def record(states: States, step: int, start: int | None = 0) -> Record:
    """What a monitor measures at a step, by a slow float64 computation; θ₀ is the state at `start`."""
    values = np.full((len(states[step]), len(COLUMNS)), np.nan)
    for row, (name, tensor) in zip(values, states[step].items(), strict=True):
        theta = tensor.double().numpy().ravel()
        known = {"sumsq": theta @ theta, "absmax": np.abs(theta).max(), "nonfinite": 0, "grad_sumsq": 1.0}
        known |= {"grad_dot": 0.5, "lr": 0.1, "weight_decay": 0.0, "kind": 0, "coupled": 1, "grouped": 1}
        if start is not None:
            known["dot_init"] = states[start][name].double().numpy().ravel() @ theta
        if step:
            before = states[step - 1][name].double().numpy().ravel()
            delta = theta - before
            known |= {"dot": before @ delta, "sumsq_delta": delta @ delta}
        row[[COLUMNS.index(column) for column in known]] = list(known.values())
    return Record(step, values, first=step == 0)


def record_all(
    path: Path, states: States, steps: Sequence[int] = STEPS, back_to: int | None = 0, **more: Any
) -> None:
    infos = [ParameterInfo(name, tuple(t.shape), "float32") for name, t in states[0].items()]
    journal = Journal(path, ParameterInventory(infos, {}, kinds=("SGD",)))
    if back_to is not None:
        journal.outbox.put(Rewind(back_to))
    for step in steps:
        journal.outbox.put(record(states, step, **more))
    assert journal.close()


def scan_steps(folder: Path, states: States, steps: Sequence[int], path: Path) -> None:
    save_series(folder, {step: states[step] for step in steps})
    scan(folder, path).close()


def distances(states: States, start: int, steps: Sequence[int]) -> list[float]:
    """‖θ − θ₀‖ of all parameters."""
    return [
        float(sum(((t.double() - states[start][n].double()) ** 2).sum() for n, t in states[s].items()) ** 0.5)
        for s in steps
    ]


def rounding(states: States) -> float:
    """Twice what a distance may be off, as documented. Each instruction set adds up in another order."""
    return 2e-4 * float(sum(t.double().square().sum() for t in states[0].values()) ** 0.5)


def distance_curve(path: Path) -> tuple[list[int], list[float]]:
    (found,) = ns.series(path, "distance", scope="all")
    return list(found.steps), list(found.values)


def count(path: Path, condition: str) -> int:
    with Run(path) as run:
        ((number,),) = run.query(f"SELECT count(*) FROM weight WHERE {condition}")
    return int(number)


# -- columns -----------------------------------------------------------------------------


def test_a_live_row_has_the_columns_of_a_scanned_one(tmp_path: Path, walk: States) -> None:
    record_all(tmp_path / "live.db", walk)
    scan_steps(tmp_path / "c", walk, STEPS, tmp_path / "scan.db")
    columns = "name, step, prev_step, sumsq, dot, sumsq_delta, dot_init, absmax, nonfinite"
    sql = f"SELECT {columns} FROM weight JOIN tensor ON id = tensor ORDER BY name, step"
    with Run(tmp_path / "live.db") as live, Run(tmp_path / "scan.db") as scanned:
        for mine, other in zip(live.query(sql), scanned.query(sql), strict=True):
            assert mine[:3] == other[:3]
            numbers = [[np.nan if value is None else value for value in row[3:]] for row in (mine, other)]
            assert numbers[0] == pytest.approx(numbers[1], rel=1e-6, abs=1e-5, nan_ok=True)
        kinds = "typeof(step), typeof(prev_step), typeof(tensor), typeof(nonfinite)"
        assert live.query(f"SELECT DISTINCT {kinds} FROM weight") == [("integer",) * 4]
    assert count(tmp_path / "live.db", f"NOT ({LIVE_ROWS})") == 0
    assert count(tmp_path / "scan.db", f"NOT ({ONLY_SCANNED})") == 0


def test_what_is_not_measured_is_null(tmp_path: Path, walk: States) -> None:
    record_all(tmp_path / "run.db", walk, start=None)
    with Run(tmp_path / "run.db") as run:
        assert run.query("SELECT DISTINCT dot_init IS NULL, absmax IS NULL FROM weight") == [(1, 0)]
        assert run.query("SELECT dot, sumsq_delta FROM weight WHERE step = 0 LIMIT 1") == [(None, None)]


def test_a_batch_of_records_is_what_single_records_are(tmp_path: Path, walk: States) -> None:
    record_all(tmp_path / "one.db", walk)
    infos = [ParameterInfo(name, tuple(t.shape), "float32") for name, t in walk[0].items()]
    journal = Journal(tmp_path / "two.db", ParameterInventory(infos, {}, ("SGD",)))
    for step in STEPS:
        journal.outbox.put(record(walk, step))
        assert journal.outbox.flush()
    assert journal.close()
    with Run(tmp_path / "one.db") as one, Run(tmp_path / "two.db") as two:
        for table in ("weight", "optimizer"):
            assert one.query(f"SELECT * FROM {table}") == two.query(f"SELECT * FROM {table}")


# -- who wrote a row -----------------------------------------------------------------------


def test_a_scan_measures_what_a_monitor_recorded(tmp_path: Path, walk: States) -> None:
    """Live rows have ⟨θ₀, θ⟩ now, which once meant that nothing is missing."""
    path = tmp_path / "run.db"
    record_all(path, walk)
    scan_steps(tmp_path / "c", walk, (2, 3, 5), path)
    tensors = len(walk[0])
    assert count(path, BOTH) == tensors  # (3, 2) is an update and a pair of checkpoints
    assert count(path, SCANNED_ROWS) == 3 * tensors
    assert count(path, f"{BOTH} AND grad_sumsq = 1.0 AND lr = 0.1") == tensors


def test_going_back_leaves_what_scans_wrote(tmp_path: Path, walk: States) -> None:
    path, tensors = tmp_path / "run.db", len(walk[0])
    record_all(path, walk)
    scan_steps(tmp_path / "c", walk, (2, 3, 5), path)
    with Run(path, write=True) as run, run.transaction():
        assert delete_live_after(run, 2) == (3 * tensors, 3)  # 4, 5 and 6; of 3 only the live columns
    assert count(path, f"step > 2 AND NOT ({ONLY_SCANNED})") == 0
    assert count(path, "step > 2 AND (lr IS NOT NULL OR grad_sumsq IS NOT NULL)") == 0
    assert count(path, "step > 2 AND sumsq IS NOT NULL AND dot_init IS NOT NULL") == 2 * tensors


def test_a_training_that_comes_again_leaves_the_sums_of_the_scan(tmp_path: Path, walk: States) -> None:
    path, tensors = tmp_path / "run.db", len(walk[0])
    record_all(path, walk)
    scan_steps(tmp_path / "c", walk, (2, 3, 5), path)
    sums = "SELECT step, prev_step, tensor, sumsq, dot, dot_init, absmax FROM weight WHERE step = 3"
    with Run(path) as run:
        before = run.query(sums)
    record_all(path, walk, (3, 4, 5, 6), back_to=2, start=None)
    with Run(path) as run:
        assert run.query(sums) == before
    assert count(path, BOTH) == tensors


def test_another_branch_replaces_the_sums_of_the_scan(tmp_path: Path, walk: States) -> None:
    """The new parameters are not those of the checkpoint, so its maximum and ⟨θ₀, θ⟩ are not theirs."""
    path, tensors = tmp_path / "run.db", len(walk[0])
    record_all(path, walk)
    scan_steps(tmp_path / "c", walk, (2, 3, 5), path)
    other = {0: walk[0], 2: walk[2], 3: {name: 1.5 * t for name, t in walk[3].items()}}
    record_all(path, other, (3,), back_to=2, start=None)
    assert count(path, BOTH) == 0
    assert count(path, f"step = 3 AND {LIVE_ROWS} AND dot_init IS NULL AND lr = 0.1") == tensors


def test_a_new_start_of_the_scan_measures_scanned_rows_again_and_no_others(
    tmp_path: Path, walk: States
) -> None:
    path = tmp_path / "run.db"
    record_all(path, walk)
    scan_steps(tmp_path / "c", walk, (2, 5), path)
    live = f"SELECT step, tensor, dot_init, absmax FROM weight WHERE {LIVE_ROWS} ORDER BY tensor, step"
    with Run(path) as run:
        before = [row for row in run.query(live) if row[0] != 1]
    scan_steps(tmp_path / "c", walk, (1, 2, 5), path)  # θ₀ is another checkpoint
    with Run(path) as run:
        assert [row for row in run.query(live) if row[0] not in (1, 2)] == [r for r in before if r[0] != 2]
        scanned = (
            f"SELECT step, dot_init FROM weight JOIN tensor ON id = tensor WHERE {SCANNED_ROWS} AND name = ?"
        )
        for name in walk[0]:
            for step, init in run.query(scanned, (name,)):
                expected = float((walk[1][name].double() * walk[step][name].double()).sum())
                assert init == pytest.approx(expected, rel=1e-6, abs=1e-5)


def test_files_of_an_earlier_release(tmp_path: Path, walk: States) -> None:
    """They have no column for the origin: what is NULL says who wrote a row."""
    path, tensors = tmp_path / "run.db", len(walk[0])
    record_all(path, walk, start=None)
    scan_steps(tmp_path / "c", walk, (2, 3, 5), path)
    kinds = (LIVE_ROWS, BOTH, ONLY_SCANNED)
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE weight SET absmax = NULL WHERE {LIVE_ROWS}")
    before = [count(path, kind) for kind in kinds]
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE weight DROP COLUMN origin")
        db.execute("DROP TABLE optimizer")
        db.execute("DROP TABLE rate")
    db.close()
    assert [count(path, kind) for kind in kinds] == before
    curve = distance_curve(path)
    record_all(path, walk, (6,), back_to=5)  # opened for writing, the file gets the column
    assert [count(path, kind) for kind in kinds] == before
    assert count(path, "origin IS NOT NULL") == tensors
    assert distance_curve(path) == curve


def test_an_older_optimizer_table_gets_its_column(tmp_path: Path, walk: States) -> None:
    path = tmp_path / "run.db"
    record_all(path, walk)
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE optimizer DROP COLUMN param_group")
    db.close()
    with Run(path) as run:
        assert set(run.table(OptimizerRow)["param_group"]) == {None}
    with Run(path, write=True) as run, run.transaction():
        run.write([OptimizerRow(9, 1, "AdamW", 0.9, False, param_group=2)])
    with Run(path) as run:
        assert list(run.table(OptimizerRow))[-1]["param_group"] == 2


# -- distances from θ₀ ---------------------------------------------------------------------


def test_the_distance_of_a_live_run(tmp_path: Path, walk: States) -> None:
    path = tmp_path / "run.db"
    record_all(path, walk)
    steps, values = distance_curve(path)
    assert steps == list(STEPS)
    assert values == pytest.approx(distances(walk, 0, STEPS), abs=rounding(walk))


def test_a_live_run_without_step_0_has_no_distance(tmp_path: Path, walk: States) -> None:
    """‖θ₀‖² is not known: the first record is not θ₀."""
    path = tmp_path / "run.db"
    record_all(path, walk, (2, 3, 4))
    with pytest.raises(SeriesError, match="contains no distance"):
        distance_curve(path)


def test_the_distance_of_a_live_run_whose_first_checkpoint_is_step_0(tmp_path: Path, walk: States) -> None:
    path = tmp_path / "run.db"
    record_all(path, walk)
    scan_steps(tmp_path / "c", walk, (0, 3, 4), path)
    steps, values = distance_curve(path)
    assert steps == list(STEPS)
    assert values == pytest.approx(distances(walk, 0, STEPS), abs=rounding(walk))


def test_two_starts_are_not_mixed(tmp_path: Path, walk: States) -> None:
    """θ₀ of the scan is step 2, that of the monitor step 0: distances are the scan's alone."""
    path = tmp_path / "run.db"
    record_all(path, walk)
    scan_steps(tmp_path / "c", walk, (2, 3, 5), path)
    steps, values = distance_curve(path)
    assert steps == [2, 3, 5]
    assert values == pytest.approx(distances(walk, 2, steps), abs=rounding(walk))
    with Run(path) as run:
        assert unsound_sentence(run.findings()) is None
        (said,) = two_starts(run)
    assert "distances are measured from step 2, the first checkpoint" in said


def test_rows_without_an_origin_are_those_of_a_scan_if_they_have_its_sums(tmp_path: Path) -> None:
    """As a program of the user may write them."""
    with Run.create(tmp_path / "run.db") as run:
        with run.transaction():
            run.write([WeightRow(0, NO_PREVIOUS, 0, 1.0, dot_init=1.0, absmax=1.0), WeightRow(1, 0, 0, 1.0)])
        assert run.query(f"SELECT step FROM weight WHERE {SCANNED_ROWS}") == [(0,)]
        assert run.query(f"SELECT step FROM weight WHERE {LIVE_ROWS}") == [(1,)]


# -- rates ---------------------------------------------------------------------------------


def test_rates_are_written_in_order_and_deleted_when_training_goes_back(tmp_path: Path, walk: States) -> None:
    path = tmp_path / "run.db"
    infos = [ParameterInfo(name, tuple(t.shape), "float32") for name, t in walk[0].items()]
    journal = Journal(path, ParameterInventory(infos, {}, ("SGD",)), stage="one")
    put = journal.outbox.put
    put(RateChanges([RateRow(1, 0, 0.1, 0.0), RateRow(1, 1, 0.2, None)]))
    put(RateChanges([RateRow(5, 0, 0.05, 0.0)]))
    put(Rewind(3))
    put(RateChanges([RateRow(4, 0, 0.07, 0.0)]))
    put(Note("key", "text"))
    put(Scalars(4, {"loss": 1.0}))
    assert journal.close()
    with Run(path) as run:
        found = run.query(
            "SELECT stage, step, param_group, lr, weight_decay FROM rate ORDER BY step, param_group"
        )
        assert found == [("one", 1, 0, 0.1, 0.0), ("one", 1, 1, 0.2, None), ("one", 4, 0, 0.07, 0.0)]
        assert run.meta["key"] == "text"
        assert len(run.table(RateRow)) == 3


def test_settings_are_written_when_they_change(tmp_path: Path, walk: States) -> None:
    """Also inside a batch, and not where a parameter has no group at a step."""
    infos = [ParameterInfo(name, tuple(t.shape), "float32") for name, t in walk[0].items()]
    journal = Journal(tmp_path / "run.db", ParameterInventory(infos, {}, ("SGD", "Adam")))
    for step, kind, momentum, grouped in ((1, 0, 0.9, 1), (2, 0, 0.9, 1), (3, 1, 0.9, 1), (4, 0, 0.5, 0)):
        made = record(walk, step)
        for name, value in {"kind": kind, "momentum": momentum, "grouped": grouped, "param_group": 3}.items():
            made.values[:, COLUMNS.index(name)] = value
        journal.outbox.put(made)
    assert journal.close()
    with Run(tmp_path / "run.db") as run:
        found = run.query("SELECT DISTINCT step, kind, momentum, param_group FROM optimizer ORDER BY step")
        number = run.query("SELECT count(*) FROM optimizer")
    assert found == [(1, "SGD", 0.9, 3), (3, "Adam", 0.9, 3)]
    assert number == [(2 * len(walk[0]),)]
