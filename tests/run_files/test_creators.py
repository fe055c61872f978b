"""Processes that create one run file at the same moment: one writes, or they take turns; nothing is lost."""

import subprocess
import sys

from normscope.run import Run

PROCESSES = 6
SCRIPT = """
import sys, time
from pathlib import Path
from normscope.errors import RunFileBusy
from normscope.run import Run
path, me, start = sys.argv[1], sys.argv[2], Path(sys.argv[3])
Path(f"{start}.{me}").touch()
while not start.exists():
    pass
end = time.monotonic() + 60
while time.monotonic() < end:
    try:
        with Run.create(path) as run, run.transaction():
            run.set_meta(me, True)
        break
    except RunFileBusy:
        time.sleep(0.01)
"""


def test_creators_at_the_same_moment_do_not_collide(tmp_path):
    path, start = tmp_path / "run.db", tmp_path / "start"
    command = [sys.executable, "-c", SCRIPT, path]
    started = [subprocess.Popen([*command, str(i), start], stderr=subprocess.PIPE) for i in range(PROCESSES)]
    while len(list(tmp_path.glob("start.*"))) < PROCESSES:
        assert all(process.poll() is None for process in started)
    start.touch()
    said = [process.communicate()[1].decode() for process in started]
    assert [process.returncode for process in started] == [0] * PROCESSES, said
    with Run(path) as run:
        assert sorted(run.meta) == [str(i) for i in range(PROCESSES)]
        assert run.query("PRAGMA integrity_check") == [("ok",)]
    assert {each.name.split(".")[0] for each in tmp_path.iterdir()} == {"run", "start"}
