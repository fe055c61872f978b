"""One case: a mutant is made, read and judged; time, memory and what was raised are checked."""

from __future__ import annotations

import contextlib
import shutil
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import normscope as ns
from normscope.errors import LONGEST, NormscopeError

from .checkpoints_read import wrong_sums
from .mutant import Answer, Grammar, Mutant, Undecided

MOST_SECONDS = 10
"""Of processor time, which other programs on the machine do not lengthen."""
MOST_BYTES = 300_000_000
"""A case may add this much; of the 500 MB promised, torch and the package take the rest."""
SCANNED = 8
"""One mutant in so many is also given to `ns.scan`."""


@dataclass
class Outcome:
    """What happened; `fault` is empty if all is well."""

    index: int
    kind: str = ""
    fault: str = ""
    seconds: float = 0.0
    memory: int = 0

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def resident() -> tuple[int, int]:
    """Bytes of memory now, and at most since `forget_peak`."""
    found = {}
    with Path("/proc/self/status").open() as status:
        for line in status:
            if line.startswith(("VmHWM", "VmRSS")):
                found[line[:5]] = int(line.split()[1]) * 1024
    return found["VmRSS"], found["VmHWM"]


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def write(mutant: Mutant, folder: Path) -> None:
    for name, data in mutant.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def run_case(grammar: Grammar, seed: int, index: int, place: Path) -> Outcome:
    """Make the mutant of an index, in an empty folder `place`, and read it."""
    outcome = Outcome(index)
    mutant = grammar.make(Random(f"{grammar.name} {seed} {index}"))
    folder = place / "source"
    folder.mkdir()
    try:
        write(mutant, folder)
        forget_peak()
        before, started = resident()[0], time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a warning would be printed
            answer = _read(grammar, mutant, folder, outcome)
            if index % SCANNED == 0 and grammar.scanned and not outcome.fault:
                _scan(folder, place, answer, outcome)
        outcome.seconds, outcome.memory = time.process_time() - started, resident()[1] - before
        if outcome.seconds > MOST_SECONDS or outcome.memory > MOST_BYTES:
            outcome.fault = outcome.fault or f"{outcome.seconds:.1f} s, {outcome.memory / 1e6:.0f} MB"
        if not outcome.fault:
            _judge(grammar, mutant, folder, answer, outcome)
    finally:
        shutil.rmtree(place)
        place.mkdir()
    return outcome


def _read(grammar: Grammar, mutant: Mutant, folder: Path, outcome: Outcome) -> Answer | None:
    try:
        answer = grammar.read(folder)
    except NormscopeError as error:
        outcome.kind = type(error).__name__
        outcome.fault = _bad_message(error)
        if mutant.sound:
            outcome.fault = f"a sound file was refused: {error}"
        return None
    except Exception as error:
        outcome.fault = f"{type(error).__name__}: {error!s:.300}{_where(error)}"
        return None
    outcome.kind = "read"
    outcome.fault = wrong_sums(answer) or ""
    return answer


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code if trace is not None else None
    return f" ({Path(code.co_filename).name}:{trace.tb_lineno})" if code is not None else ""


def _bad_message(error: NormscopeError) -> str:
    words = str(error)
    if not words or len(words) > LONGEST or not words.isprintable():
        return f"a message that cannot be printed: {words!r:.600}"
    if "more memory than there is" in words or "does not fit into memory" in words:
        return words
    return ""


def _scan(folder: Path, place: Path, answer: Answer | None, outcome: Outcome) -> None:
    """A scan gives the same numbers as reading, or an error of ours."""
    try:
        with contextlib.closing(ns.scan(folder, place / "run.db", workers=1)) as run:
            rows = run.query("SELECT name, sumsq, absmax, nonfinite FROM weight JOIN tensor ON id = tensor")
    except NormscopeError as error:
        outcome.fault = _bad_message(error)
        return
    except Exception as error:
        outcome.fault = f"scan: {type(error).__name__}: {error!s:.300}{_where(error)}"
        return
    if answer is None:
        outcome.fault = "scanned, but reading it fails"
    else:
        found = {row[0]: tuple(row[1:]) for row in rows}
        outcome.fault = wrong_sums(answer, found) or ""


def _judge(grammar: Grammar, mutant: Mutant, folder: Path, answer: Answer | None, outcome: Outcome) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome.fault = grammar.judge(mutant, folder, answer) or ""
        if answer is not None:
            outcome.kind = "right"
    except Undecided:
        pass
    except Exception as error:
        if answer is not None:
            outcome.fault = f"read, but the judge refuses it: {type(error).__name__}: {error!s:.200}"
