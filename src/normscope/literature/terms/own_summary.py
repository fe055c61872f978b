"""A summary by a command of the user's: the abstract on its input, the summary on its output."""

from __future__ import annotations

import shlex
import subprocess

from normscope.errors import LiteratureError, UsageError
from normscope.words import printable

PATIENCE = 300.0  # seconds
LONGEST = 20_000  # characters: a summary, not a log


def summarize_with(command: str, abstract: str, patience: float = PATIENCE) -> tuple[str, ...]:
    """Run a command, without a shell, and return the paragraphs that it printed."""
    words = _words(command)
    try:
        done = subprocess.run(
            words, input=abstract, capture_output=True, text=True, encoding="utf-8", errors="replace",
            timeout=patience, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise UsageError(f"--summarize: the command {words[0]!r} was not found; is it installed?") from None
    except OSError as error:
        raise UsageError(f"--summarize: {words[0]!r} could not be run: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise LiteratureError(
            f"--summarize: {command!r} gave no answer within {patience:g} s; try it alone, or leave "
            "--summarize out"
        ) from None
    if done.returncode:
        said = printable((done.stderr or done.stdout).strip()[-300:]) or "it printed nothing"
        raise LiteratureError(f"--summarize: {command!r} failed with exit code {done.returncode}: {said}")
    return _paragraphs(done.stdout, command)


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(
            f"--summarize must be a command such as 'llm -m MODEL'; got {command!r} ({error})"
        ) from None
    if not words:
        raise UsageError("--summarize must be a command such as 'llm -m MODEL'; got nothing")
    return words


def _paragraphs(printed: str, command: str) -> tuple[str, ...]:
    found = tuple(" ".join(line.split()) for line in printed[:LONGEST].splitlines() if line.strip())
    if not found:
        raise LiteratureError(f"--summarize: {command!r} printed nothing on its standard output")
    return found
