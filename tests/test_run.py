"""The run file: what is written is read, twice written is once there, and bad files are named."""

import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest

from normscope.errors import NotARunFile, RunFileError, RunVersionError
from normscope.rows import SimilarityRow
from normscope.run import (
    CheckpointRow,
    HeadRow,
    MeasureRow,
    Run,
    SaturationRow,
    ScalarRow,
    TensorRow,
    WeightRow,
)

TENSOR = TensorRow(1, "h.0.attn.c_attn.weight", "model", 0, "qkv", (4, 12), "float32", 48)
ROWS = [
    CheckpointRow(0, "step0", "a/step0"),
    CheckpointRow(10, "step10", "a/step10", tokens=1000, bytes=5),
    WeightRow(0, -1, 1, 4.0),
    WeightRow(10, 0, 1, 9.0, 1.0, 3.0, 5.0, 0.5),
    SaturationRow(0, "h.0", 0, 0.5, 0.1, 100, 1024.0, True),
    HeadRow(0, "h.0.attn", 0, 3, "argmax", 0.2, 1.1, 0.1, 0.0, 0.3, 2.0, 0.9, 1.5, 0.1),
    SimilarityRow(0, "last", 10, "h.0", 0, 0.5, 0.4, None, 100),
    ScalarRow(0, "loss", 5.5),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.db"


def fill(path):
    with Run.create(path) as run, run.transaction():
        run.add_tensors([TENSOR])
        run.write(ROWS)
        run.set_meta("command", ["normscope", "scan"])
        run.set_artifact("attention", "0/h.0/3", {"tokens": ["a"]})
        run.set_skipped([("x", "buffer")])


def test_what_is_written_is_read(path):
    fill(path)
    with Run(path) as run:
        assert run.checkpoints() == ROWS[:2]
        assert run.tensors() == [TENSOR]
        assert run.meta == {"command": ["normscope", "scan"]}
        assert run.skipped() == {"x": "buffer"}
        assert run.artifacts("attention") == {"0/h.0/3": {"tokens": ["a"]}}
        assert run.stages() == [""]
        for kind in (WeightRow, SaturationRow, HeadRow, SimilarityRow, ScalarRow):
            assert [kind(**row) for row in run.table(kind)] == [row for row in ROWS if type(row) is kind]


def test_writing_twice_changes_nothing(path):
    fill(path)
    with Run(path) as run:
        once = run.query("SELECT * FROM weight"), run.query("SELECT * FROM scalar")
    fill(path)
    with Run(path) as run:
        assert (run.query("SELECT * FROM weight"), run.query("SELECT * FROM scalar")) == once


def test_sums_leave_the_gradient_columns_alone(path):
    fill(path)
    with Run.create(path) as run, run.transaction():
        run.write([WeightRow(11, 10, 1, 1.0, grad_sumsq=7.0, lr=0.1)])
        run.write_sums([("", 11, 10, 1, 2.0, 0.0, 0.0, 0.0, 1.0, 0)])
    with Run(path) as run:
        assert run.query("SELECT sumsq, grad_sumsq, lr FROM weight WHERE step = 11") == [(2.0, 7.0, 0.1)]


def test_an_interrupted_transaction_leaves_nothing(path):
    fill(path)
    with Run.create(path) as run:
        with pytest.raises(KeyboardInterrupt), run.transaction():
            run.write([ScalarRow(99, "loss", 1.0)])
            raise KeyboardInterrupt
        assert run.query("SELECT count(*) FROM scalar") == [(1,)]


def test_forgetting_what_came_after_a_step(path):
    fill(path)
    with Run.create(path) as run:
        with run.transaction():
            run.delete_after(0)
        assert [row.step for row in run.checkpoints()] == [0]
        assert run.query("SELECT step FROM weight") == [(0,)]


def test_no_file(path):
    with pytest.raises(RunFileError, match="no run file at .*normscope scan"):
        Run(path)


def test_a_file_that_is_something_else(path):
    path.write_text("step,norm\n" * 200)
    with pytest.raises(NotARunFile, match="not an SQLite database"):
        Run(path)


def test_somebody_elses_database(path):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE x(y)")
    db.close()
    with pytest.raises(NotARunFile, match="not a normscope run file"):
        Run(path)


def test_a_run_file_of_another_version(path):
    fill(path)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(RunVersionError, match="version 99.*reads version 1"):
        Run(path)


def test_a_place_that_cannot_be_written(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(RunFileError, match="cannot create the run file"):
        Run.create(blocked / "run.db")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_reader_may_look_while_a_writer_is_open(path):
    fill(path)
    with Run.create(path) as writer, Run(path) as reader:
        with writer.transaction():
            writer.write([ScalarRow(5, "loss", 1.0)])
        assert reader.query("SELECT count(*) FROM scalar") == [(2,)]


def test_a_file_of_an_earlier_release_is_completed(path):
    """It lacks the tables added since: a reader sees them empty, a writer adds them for good."""
    fill(path)
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE measure")
    db.close()
    before = path.read_bytes()
    with Run(path) as run:
        assert run.measure_names() == []
        assert run.query("SELECT * FROM measure") == []
    assert path.read_bytes() == before
    with Run.create(path) as run, run.transaction():
        run.write([MeasureRow(10, 1, "stable rank", 3.5), MeasureRow(10, 1, "entropy", None)])
    with Run(path) as run:
        assert run.measure_names() == ["entropy", "stable rank"]
        assert run.measured("stable rank") == {("", 10, 1)}
        assert len(run.checkpoints()) == 2


def killed_while_writing(path):
    """A run file whose writer was killed in the middle of a transaction, with pages on disk already."""
    script = f"""
import os
from normscope.run import Run
run = Run.create({str(path)!r})
with run.transaction():
    run.set_meta("kept", True)
run.query("PRAGMA cache_size = 2")
with run.transaction():
    for step in range(3000):
        run.write_sums([("", step, step - 1, 0, 1.0, 1.0, 1.0, 1.0, 1.0, 0)])
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    journal = path.with_name(path.name + "-journal")
    assert journal.stat().st_size
    return journal


def test_a_file_whose_writer_was_killed_can_be_read(tmp_path):
    """A reader may not play back a journal, so it has to be done for it."""
    path = tmp_path / "run.db"
    journal = killed_while_writing(path)
    with Run(path) as run:
        assert run.meta == {"kept": True} and run.stages() == []
    assert not journal.exists()


def test_a_journal_is_not_played_back_into_another_file(tmp_path):
    """Who deletes run.db after a crash, as messages advise, leaves its journal behind."""
    path = tmp_path / "run.db"
    journal = killed_while_writing(path)
    old = journal.read_bytes()
    path.unlink()
    with Run.create(path) as run:
        assert not journal.exists() or journal.read_bytes() != old
        with run.transaction():
            run.set_meta("new", 1)
    with Run(path) as run:
        assert run.meta == {"new": 1} and run.query("PRAGMA integrity_check") == [("ok",)]


def test_a_file_of_an_older_release_lacks_columns_until_it_is_written(tmp_path):
    path = tmp_path / "run.db"
    old = HeadRow(0, "h.0.attn", 0, 3, "argmax", 0.2, 1.1, 0.1, 0.0, 0.3, 2.0, 0.9, 1.5, 0.1)
    with Run.create(path) as run, run.transaction():
        run.write([old, SaturationRow(0, "h.0", 1, 0.9, 0.1, 10, 1024.0, converged=True)])
    with sqlite3.connect(path) as db:
        for column in ("converged", "settles_at", "unsettled", "overlap", "output", "attends"):
            db.execute(f"ALTER TABLE head DROP COLUMN {column}")
        db.execute("ALTER TABLE saturation DROP COLUMN settles_at")
    before = path.read_bytes()
    with Run(path) as run:
        assert run.table(HeadRow)["settles_at"] == [None] and run.table(HeadRow)["type"] == ["argmax"]
        assert run.table(SaturationRow)["settles_at"] == [None]
    assert path.read_bytes() == before
    new = replace(old, head=4, settles_at=8.0, attends={"name": "previous"})
    with Run.create(path) as run, run.transaction():
        run.write([new])
    with Run(path) as run:
        rows = [HeadRow(*values) for values in zip(*run.table(HeadRow).columns.values(), strict=True)]
    assert rows == [old, new] and rows[1].attends == {"name": "previous"}
