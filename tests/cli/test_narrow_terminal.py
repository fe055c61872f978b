"""In a terminal of 80 columns no number is cut: text wraps, and columns that do not fit are named."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress

from normscope.cli import output
from normscope.cli.column_widths import GAP, column_widths
from normscope.cli.work_display import _rate

from ..views.networks import write_network
from ..views.runs import write_walk
from .calling import call

STEPS = [0, *(int(step) for step in np.geomspace(10, 20000, 14))]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_walk(folder / "a.db", STEPS, layers=3)
    write_walk(folder / "b.db", STEPS, layers=3, seed=1)
    write_network(folder / "net.db")
    return folder


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 80 columns, as every command's console."""
    shown = Console(file=io.StringIO(), width=80, highlight=False, force_terminal=True, color_system=None)
    monkeypatch.setattr(output, "console", lambda: shown)
    return shown.file


COMMANDS = [
    ("fit", "t5-base"),
    ("fit", "a.db"),
    ("fit", "a.db", "--by", "layer"),
    ("fit", "a.db", "--by", "role"),
    ("show", "a.db"),
    ("show", "a.db", "--by", "layer"),
    ("show", "a.db", "--measure", "budget"),
    ("compare", "a.db", "b.db", "--by", "layer"),
    ("forecast", "t5-base", "--to", "900000"),
    ("forecast", "a.db", "--to", "40000"),
    ("paper", "2010.09697", "--offline"),
    ("plugins",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_line_is_longer_and_no_number_is_cut(command, runs, terminal):
    words = [str(runs / word) if word.endswith(".db") else word for word in command]
    done = call(*words)
    assert done.code == 0, done.stderr
    printed = terminal.getvalue()
    assert max(map(len, printed.splitlines()), default=0) <= 80
    assert not re.search(r"\d…", printed)


def test_all_of_r2_is_shown(runs, terminal):
    done = call("fit", "t5-base")
    laws = json.loads(call("fit", "t5-base", "--json").stdout)["laws"]
    assert done.code == 0
    for law in laws:
        assert f"{law['r2']:.5f}" in terminal.getvalue()


def test_columns_that_do_not_fit_are_named(terminal):
    names = [f"measure number {i}" for i in range(8)]
    output.print_table(names, [[0.123456789 * i for i in range(8)]])
    printed = terminal.getvalue()
    told = printed[printed.index("left out") :].replace("\n", " ")
    shown = [name for name in names if name in printed.splitlines()[0]]
    assert shown == names[: len(shown)] and all(name in told for name in names[len(shown) :])
    assert "0.123457" in printed


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("seed", range(5))
def test_widths_fit_and_numbers_keep_theirs(width, seed):
    """Whatever the table: numbers keep their width or are left out, from the right, and the sum fits."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 12))
    is_text = (rng.random(count) < 0.4).tolist()
    lengths = rng.integers(1, 40, count).tolist()
    widths = column_widths([["x" * length] for length in lengths], is_text, width)
    kept = [w for w in widths if w]
    assert widths == [*kept, *[0] * (count - len(kept))] and kept
    assert len(kept) == 1 or sum(kept) + GAP * (len(kept) - 1) <= width
    for found, length, text in zip(kept, lengths, is_text, strict=False):
        assert found == length or (text and found < length)


def test_the_speed_of_what_is_counted_in_bytes():
    clock = [0.0]
    bar = Progress(console=Console(file=io.StringIO()), get_time=lambda: clock[0])
    tasks = [bar.add_task("reading", total=1e12) for _ in range(2)]
    assert _rate("B", bar, tasks[1]) == ""  # nothing is known yet
    for second, done in enumerate((0, 1_234_000_000, 2_468_000_000)):
        clock[0] = float(second)
        bar.update(tasks[1], completed=done)
    assert _rate("B", bar, tasks[1]) == "1,234 MB/s"
    assert _rate("tensors", bar, tasks[1]) == _rate("B", bar, tasks[0]) == ""


def test_a_column_without_a_name_or_a_cell_is_not_called_left_out(terminal):
    output.print_table(["group", ""], [["00", ""], ["01", ""]])
    assert "left out" not in terminal.getvalue()


def test_a_zero_has_no_sign():
    assert [output.number(value) for value in (-0.0, 0.0, -1e-9)] == ["0", "0", "-1e-09"]
