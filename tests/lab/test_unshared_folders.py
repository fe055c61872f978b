"""Sweeps whose workers do not share the folder, or lack what they need; relative paths; all cells failed."""

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from normscope.engines.nodes import Node
from normscope.errors import NodeProblem
from normscope.lab.config import TrainConfig, override
from normscope.lab.sweep.cell_needs import SameBuiltInText, cell_needs, in_callers_folder
from normscope.lab.sweep.cells import make_cells
from normscope.lab.sweep.sweep import SweepConfig, sweep
from tests.cli.calling import call
from tests.lab.at_once import AtOnce
from tests.lab.sweeping import BASE, essence, recorded, small_sweep


class Elsewhere(ThreadPoolExecutor):
    """A worker that does not see the sweep's token: for it, the folder is another."""

    def submit(self, fn, job, shared):
        return super().submit(fn, job, replace(shared, token="0" * 32))


def test_files_come_back_where_nothing_is_shared(tmp_path):
    """The numbers are also those of one thread: two threads share the random numbers of their process."""
    with ThreadPoolExecutor(1) as executor:
        wanted = sweep(small_sweep(steps=5, lrs=(1e-3,)), tmp_path / "shared", engine=executor)
    with Elsewhere(2) as executor:
        found = sweep(small_sweep(steps=5, lrs=(1e-3,)), tmp_path / "apart", engine=executor)
    assert (essence(found), recorded(found)) == (essence(wanted), recorded(wanted))
    assert sorted(p.name for p in (tmp_path / "apart").iterdir()) == sorted(
        p.name for p in (tmp_path / "shared").iterdir()
    )
    (remark,) = [remark for remark in found.remarks if "does not share" in remark]
    assert "its cells' files came back" in remark
    assert not any("does not share" in remark for remark in wanted.remarks)


def test_a_relative_text_is_the_callers(tmp_path, monkeypatch):
    """The config of a cell names the file by its whole path; the base is recorded as it was given."""
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 200)
    monkeypatch.chdir(tmp_path)
    base = override(TrainConfig(), BASE | {"steps": 2, "text": "text.txt"})
    (cell,) = make_cells(base, [{"lr": 0.1}])
    assert in_callers_folder(cell).config.data.text == str(tmp_path / "text.txt")
    assert in_callers_folder(cell).id == cell.id

    class Moving(ThreadPoolExecutor):
        def submit(self, fn, *args):
            def moved():
                with contextlib.chdir("/"):
                    return fn(*args)

            return super().submit(moved)

    with Moving(1) as executor:
        result = sweep(SweepConfig(base, [{"lr": 0.1}]), tmp_path / "out", engine=executor)
    assert result.counts == {"done": 1}
    assert os.getcwd() == str(tmp_path)  # noqa: PTH109


def test_texts_and_programs_are_needed(tmp_path):
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 200)
    (tmp_path / "mine.py").write_text("def loss(logits, targets): return logits.sum()\n")
    changes = {"text": str(tmp_path / "text.txt"), "loss": f"{tmp_path / 'mine.py'}:loss"}
    needs = cell_needs(make_cells(override(TrainConfig(), BASE | changes), [{"lr": 0.1}]))
    assert needs.problem() is None
    (tmp_path / "mine.py").unlink()
    assert "cannot read" in needs.problem() and "mine.py" in needs.problem()


def test_the_text_of_another_python_is_noticed():
    needs = cell_needs(make_cells(override(TrainConfig(), BASE), [{"lr": 0.1}]))
    assert needs.problem() is None
    assert "which comes with another text" in SameBuiltInText("0" * 32)()


class OneNode(ThreadPoolExecutor):
    """A cluster of one node, on which a text is missing."""

    def __init__(self, missing):
        super().__init__(1)
        self.missing = missing

    def nodes(self):
        return [Node("1", "gamma")]

    def submit_to(self, node, fn, *args):
        self.missing.unlink()
        return self.submit(fn, *args)


def test_a_node_without_the_text_is_named_and_nothing_starts(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be\n" * 200)
    base = override(TrainConfig(), BASE | {"steps": 2, "text": str(text)})
    with OneNode(text) as executor, pytest.raises(NodeProblem, match="node gamma cannot read .*text.txt"):
        sweep(SweepConfig(base, [{"lr": 0.1}]), tmp_path / "out", engine=executor)
    assert not (tmp_path / "out" / "cells").exists()


@pytest.mark.parametrize(
    ("rates", "said"),
    [((0.1, 0.2), "all 2 cells failed, the first one: "), ((0.1,), "the only cell failed: ")],
)
def test_a_sweep_whose_cells_all_fail_is_a_failure(tmp_path, rates, said):
    """The command says so also when there is nothing left to do."""
    (tmp_path / "mine.py").write_text("def loss(logits, targets): raise RuntimeError('the moon')\n")
    base = override(TrainConfig(), {"loss": f"{tmp_path / 'mine.py'}:loss", "steps": 2, "save": "never"})
    result = sweep(SweepConfig(base, [{"lr": rate} for rate in rates]), tmp_path / "out", engine=AtOnce())
    assert result.counts == {"failed": len(rates)}
    words = ["--lr", ",".join(map(str, rates)), "--steps", 2, "--loss", f"{tmp_path / 'mine.py'}:loss"]
    done = call("sweep", *words, "-o", tmp_path / "out")
    assert done.code == 1
    assert said in done.stderr and "RuntimeError: the moon" in done.stderr
    assert done.stderr.count("\n") == 1
