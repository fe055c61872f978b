"""`scan --follow` measures what is complete and waits for the rest."""

import json
import os
import signal
import subprocess
import sys

from safetensors.torch import save_file

from tests.conftest import random_walk, save_series


def test_a_new_checkpoint_is_measured_when_it_is_there(tmp_path):
    states = random_walk([1, 2, 3])
    folder = save_series(tmp_path / "series", {step: states[step] for step in (1, 2)})
    old = 1_000_000_000
    for path in folder.iterdir():
        os.utime(path, (old, old))
    command = [
        sys.executable,
        "-m",
        "normscope",
        "scan",
        str(folder),
        "--run",
        str(tmp_path / "r.db"),
        "--follow",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            first = json.loads(process.stdout.readline())
            assert first["stages"][0]["last_step"] == 2
            save_file(states[3], tmp_path / "part")
            (tmp_path / "part").rename(folder / "step_3.safetensors")
            os.utime(folder / "step_3.safetensors", (old, old))
            second = json.loads(process.stdout.readline())
            assert second["stages"][0]["last_step"] == 3
        finally:
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=60)
    assert "Traceback" not in stderr
    assert process.returncode == 130
    assert stderr.splitlines()[-1] == (
        "normscope: interrupted: what was measured is in the run file; the same command continues from there"
    )
