"""Crafted inputs for commands: each is written by code and read in a child process, which is watched."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

MOST_SECONDS, MOST_BYTES, LONGEST = 20, 500_000_000, 500
RUNNER = Path(__file__).parent / "checkpoints" / "hostile" / "runner.py"


@dataclass(frozen=True)
class Case:
    """An input: `write` puts it at a path that does not exist yet, whose name ends in `suffix`.

    `code` is the exit code that the command must have, and `says` a part of what it must print.
    """

    write: Callable[[Path], object]
    says: str = ""
    code: int = 1
    suffix: str = ""
    slow: bool = False


def parameters(cases: Mapping[str, Case]) -> list[object]:
    """For `pytest.mark.parametrize`: the names of the cases; the slow ones are marked."""
    return [pytest.param(name, marks=[pytest.mark.slow] * cases[name].slow, id=name) for name in cases]


def started_runner() -> Iterator[subprocess.Popen[str]]:
    """The process that runs commands, for a fixture."""
    command = [sys.executable, str(RUNNER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


def check(case: Case, folder: Path, runner: subprocess.Popen[str], *argv: str) -> str:
    """Run the command, in which SOURCE and HERE stand for the input and its folder; what it printed."""
    path = folder / f"source{case.suffix}"
    case.write(path)
    words = [str(path) if word == "SOURCE" else word.replace("HERE", str(folder)) for word in argv]
    runner.stdin.write(json.dumps({"argv": words, "said": str(folder / "said")}) + "\n")
    runner.stdin.flush()
    found = json.loads(runner.stdout.readline())
    printed, said = ((folder / f"said.{part}").read_text() for part in ("out", "err"))
    assert found["code"] == case.code, (found, said[-2000:])
    assert found["cpu"] < MOST_SECONDS  # not the wall time, which others on the machine lengthen
    assert found["bytes"] < MOST_BYTES
    assert "Traceback" not in said and "unexpected" not in said, said
    assert case.says in (said if case.code else printed), (said, printed)
    if case.code:
        assert said.count("\n") == 1 and len(said) <= LONGEST + 1 and path.name in said, said
    assert (printed + said).replace("\n", "").isprintable()
    return printed
