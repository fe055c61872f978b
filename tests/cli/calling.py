"""Ways to call the command line in tests: in this process, or in one of its own."""

import contextlib
import io
import json
import subprocess
import sys
from dataclasses import dataclass
from unittest import mock

FIELDS = ("d_model=16", "n_layers=1", "d_ff=16", "n_heads=2", "eval_batches=1")
SMALL = ("--batch", "2", *(word for field in FIELDS for word in ("--set", field)))
"""Options that make a lab model as small as it can be."""


@dataclass(frozen=True)
class Done:
    """What a command printed, and its exit code."""

    code: int
    stdout: str
    stderr: str


def call(*words, cwd=None):
    """Run `normscope WORDS` as the installed command does, without starting a process."""
    from normscope.cli.app import main

    stdout, stderr, code = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.chdir(cwd or "."),
        mock.patch.object(sys, "argv", ["normscope", *map(str, words)]),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    assert "Traceback" not in stderr.getvalue()
    return Done(code, stdout.getvalue(), stderr.getvalue())


def call_json(*words, code=0):
    """The JSON that a command prints."""
    done = call(*words, "--json")
    assert done.code == code, done.stderr
    return json.loads(done.stdout)


def normscope(*words, cwd=None, code=0, env=None):
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "normscope", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, done.stdout + done.stderr
    return done
