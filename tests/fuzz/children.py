"""Many cases in child processes; one that crashes or hangs is named, and the next child goes on after it."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .mutant import Grammar
from .watched import Outcome, run_case

MOST_SECONDS = 60
"""Of wall time for one case."""
PER_CHILD = 500
ADDRESS_SPACE = 16 << 30
FAST = Path("/dev/shm")


@dataclass
class Report:
    """What became of the cases of one format."""

    format: str
    kinds: Counter[str] = field(default_factory=Counter)
    faults: dict[int, str] = field(default_factory=dict)
    slowest: float = 0.0
    largest: int = 0

    def add(self, outcome: Outcome) -> None:
        self.kinds[outcome.kind] += 1
        self.slowest = max(self.slowest, outcome.seconds)
        self.largest = max(self.largest, outcome.memory)
        if outcome.fault:
            self.faults[outcome.index] = outcome.fault

    @property
    def cases(self) -> int:
        return sum(self.kinds.values())


def run(grammar: Grammar, seed: int, cases: range) -> Report:
    """Run the cases of these indices."""
    report = Report(grammar.name)
    todo = list(cases)
    while todo:
        last = None
        for outcome in _one_child(grammar, seed, todo[:PER_CHILD]):
            report.add(outcome)
            last = outcome.index
        todo = [index for index in todo if last is not None and index > last]
    return report


def _one_child(grammar: Grammar, seed: int, indices: list[int]) -> Iterator[Outcome]:
    """The outcomes of one child, up to the case at which it dies."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        _work(grammar, seed, indices, theirs)
    os.close(theirs)
    current, phase, why = indices[0], "", ""
    with os.fdopen(ours, "rb", 0) as pipe:
        for line in _lines(pipe):
            if line is None:
                why = f"hangs: more than {MOST_SECONDS} s"
                os.kill(child, signal.SIGKILL)
                break
            told = json.loads(line)
            if "begin" in told:
                current = told["begin"]
            else:
                yield Outcome(**told)
                current = -1
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if current != -1 and (code or why):
        yield Outcome(current, "died", why or f"the process ended with {code} {phase}")


def _lines(pipe) -> Iterator[bytes | None]:
    """The lines that the child writes; None if it writes none for too long."""
    rest = b""
    while True:
        if not select.select([pipe], [], [], MOST_SECONDS)[0]:
            yield None
            return
        data = pipe.read(1 << 16)
        if not data:
            return
        *whole, rest = (rest + data).split(b"\n")
        yield from whole


def _work(grammar: Grammar, seed: int, indices: list[int], pipe: int) -> None:
    """In the child: run the cases, and tell the parent before and after each."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    place = Path(tempfile.mkdtemp(prefix="fuzz-", dir=FAST if FAST.is_dir() else None))
    try:
        for index in indices:
            os.write(pipe, b'{"begin": %d}\n' % index)
            outcome = run_case(grammar, seed, index, place)
            os.write(pipe, json.dumps(outcome.as_dict()).encode() + b"\n")
    except BaseException:
        import traceback

        traceback.print_exc()
        shutil.rmtree(place, ignore_errors=True)
        os._exit(70)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    os._exit(0)
