"""Small faults in the C kernel: one operator, number or statement changed; not all of them compile."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.linked_package import PACKAGE
from tests.mutation.python_mutants import Mutant

COMMENT = re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|^#.*?(?<!\\)$", re.DOTALL | re.MULTILINE)
SWAPS = {
    r" < ": (" <= ", " >= "),
    r" > ": (" >= ", " <= "),
    r" <= ": (" < ",),
    r" >= ": (" > ",),
    r" == ": (" != ",),
    r" != ": (" == ",),
    r" \+= ": (" -= ", " = "),
    r" \+ ": (" - ",),
    r" - ": (" + ",),
    r" \* ": (" + ",),
    r" / ": (" * ",),
    r" && ": (" || ",),
    r" \|\| ": (" && ",),
    r" << ": (" >> ",),
    r" \? ": (" ? !",),
    r"(?<![\w.])\d+(?![\w.])": ("NEXT",),
    r"(?<=[;{] )continue;": (";",),
    r"\w+(?:->|\.)\w+\+\+;": (";",),
    r"!(?=\w|\()": ("",),
}
POINTER = re.compile(r"\b(char|double|float|void|int64_t|uint8_t|PyObject|Py_buffer|Walk|Sums|Chain) \* ?$")


def kernel_mutants(path: Path) -> Iterator[Mutant]:
    """Every fault that the table above can make in a C file."""
    text = path.read_text()
    plain = COMMENT.sub(lambda found: re.sub(r"[^\n]", "~", found[0]), text)
    name = path.relative_to(PACKAGE).as_posix()
    for pattern, others in SWAPS.items():
        for found in re.finditer(pattern, plain):
            if POINTER.search(plain[: found.end()]):
                continue
            for other in others:
                new = str(int(found[0]) + 1) if other == "NEXT" else other
                changed = text[: found.start()] + new + text[found.end() :]
                line = text.count("\n", 0, found.start())
                lines = text.splitlines()[line].strip(), changed.splitlines()[line].strip()
                yield Mutant(name, line + 1, 0, "kernel", *(each[:160] for each in lines), changed)
