"""A file is there completely or not at all, also when several processes write it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from normscope.atomic_write import ABANDONED, atomic_write

SLOW_WRITER = """
import sys
from pathlib import Path
from normscope.atomic_write import atomic_write
with atomic_write(Path(sys.argv[1])) as part:
    part.write_text(sys.argv[2] * 1000)
    print(part.name, flush=True)
    sys.stdin.read()
"""


def writer(target, letter):
    command = [sys.executable, "-c", SLOW_WRITER, str(target), letter]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_writers_at_the_same_time_do_not_meet(tmp_path):
    target = tmp_path / "page.html"
    writers = [writer(target, letter) for letter in "abc"]
    assert len({name for _, name in writers}) == 3
    assert names(tmp_path) == sorted(name for _, name in writers)
    for letter, (process, _) in zip("abc", writers, strict=True):
        process.communicate()
        assert process.returncode == 0
        assert target.read_text() == letter * 1000
    assert names(tmp_path) == ["page.html"]


def test_two_calls_in_one_process_do_not_meet(tmp_path):
    target = tmp_path / "page.html"
    with atomic_write(target) as first, atomic_write(target) as second:
        first.write_text("first")
        second.write_text("second")
    assert target.read_text() == "first" and names(tmp_path) == ["page.html"]


def test_what_a_killed_process_left_is_removed(tmp_path):
    target = tmp_path / "page.html"
    killed, left = writer(target, "a")
    alive, kept = writer(target, "b")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    (tmp_path / f"{left}-journal").write_text("of a database")
    (tmp_path / ".another.html.1-000000-00000000.part").write_text("of another file")
    with atomic_write(target) as part:
        part.write_text("new")
        assert left not in names(tmp_path) and f"{left}-journal" not in names(tmp_path)
        assert kept in names(tmp_path)
    alive.communicate()
    assert target.read_text() == "b" * 1000
    assert names(tmp_path) == [".another.html.1-000000-00000000.part", "page.html"]


@pytest.mark.parametrize("left", [".page.html.99999999-000000-0123abcd.part", ".page.html.part"])
def test_what_another_machine_left_is_removed_after_a_day(tmp_path, left):
    """Its processes cannot be asked; nor are those of earlier releases known."""
    part = tmp_path / left
    part.write_text("half")
    for age, there in ((60, True), (ABANDONED + 60, False)):
        os.utime(part, (time.time() - age, time.time() - age))
        with atomic_write(tmp_path / "page.html") as new:
            new.write_text("whole")
        assert part.exists() is there


def test_an_exception_leaves_nothing(tmp_path):
    target = tmp_path / "page.html"
    target.write_text("before")
    with pytest.raises(KeyboardInterrupt), atomic_write(target) as part:
        part.write_text("half")
        raise KeyboardInterrupt
    assert target.read_text() == "before" and names(tmp_path) == ["page.html"]


@pytest.mark.parametrize("name", ["x" * 250, "é" * 120, "a[*].html", "run.db"])
def test_any_name_that_a_file_can_have(tmp_path, name):
    for text in ("one", "two"):
        with atomic_write(tmp_path / name) as part:
            part.write_text(text)
    assert (tmp_path / name).read_text() == "two" and len(names(tmp_path)) == 1
