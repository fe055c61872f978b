"""Crafted training logs, as code that writes them; `normscope fit` reads each."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

from tests.crafted import Case

CASES: dict[str, Case] = {}
NORMS = "".join(f"{step},{(step + 10) ** 0.5}\n" for step in range(0, 400, 10))


def add(name: str, write: Callable[[Path], object], says: str = "", code: int = 1, **more) -> None:
    """Add a case; every name is used once."""
    assert name not in CASES, name
    CASES[name] = Case(write, says, code, **more)


def text(name: str, content: Callable[[], str], says: str = "", code: int = 1, **more) -> None:
    """A case that is one file of text."""
    add(
        name,
        lambda path: path.write_text(content(), encoding="utf-8", errors="surrogatepass"),
        says,
        code,
        **more,
    )


def csv(name: str, content: Callable[[], str], says: str = "", code: int = 1, **more) -> None:
    text(f"csv: {name}", content, says, code, suffix=".csv", **more)


def document(name: str, content: Callable[[], str], says: str = "", code: int = 1, **more) -> None:
    text(f"json: {name}", content, says, code, suffix=".json", **more)


def table(name: str, values: str = "norm") -> str:
    """A sound CSV file whose columns have these names."""
    return f"{name},{values}\n{NORMS}"


def folder_of(files: dict[str, bytes | str]) -> Callable[[Path], None]:
    """A folder with these files."""

    def write(path: Path) -> None:
        for name, content in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return write


csv("sound", lambda: table("step"), "sqrt-linear", 0)
csv("a million columns", lambda: "step,norm," + "a," * 1_000_000 + "\n" + "1," * 1_000_002 + "\n", "limit")
csv("60,000 columns", lambda: "step,norm" + ",a" * 60_000 + "\n" + "1" + ",1" * 60_001, "too many columns")
csv("two million columns without names", lambda: "," * 2_000_000 + "step,norm\n" + "1," * 2_000_002, "limit")
csv("a name of 3 MB", lambda: table("step", "x" * 3_000_000), "field limit")
csv("a name of 100 kB for quadratic patterns", lambda: table("step", "norm_" * 20_000), "sqrt-linear", 0)
csv("a name of underscores", lambda: table("step", "_" * 100_000 + "norm"), "sqrt-linear", 0)
csv("a name of slashes and blanks", lambda: table("step", "norm " + "/ " * 50_000 + "x"), "sqrt-linear", 0)
csv("capitals and digits for word patterns", lambda: table("step", "aA1" * 40_000 + "Norm"), "sqrt-linear", 0)
csv(
    "names with escapes",
    lambda: table("step", "\x1b[31mnorm a,\x1b]0;x\x07norm b").replace("\n0,", "\n0,1,"),
    "",
)
csv("only names with escapes", lambda: table("\x1b[2Jone", "\x1b[2Jtwo"), "no step column")
csv("a quotation mark that never closes", lambda: table("step") + '"' + "1,2\n" * 200_000, "field limit")
csv("a row of 200 kB in one cell", lambda: table("step") + "x" * 200_000 + ",1\n", "field limit")
csv("a line of 5 MB", lambda: table("step") + "1," * 2_500_000 + "\n", "line of more than")
csv(
    "100,000 names that are the norm",
    lambda: "step" + ",norm" * 100_000 + "\n" + "1" * 1 + ",1" * 100_000,
    "norm",
)
csv("steps of 10^400", lambda: f"step,norm\n1,2\n2,3\n{'9' * 400},4\n3,5\n4,6\n5,7\n", "not a finite number")
csv(
    "norms of 10^308",
    lambda: "step,norm\n" + "".join(f"{i},{i}e307\n" for i in range(1, 17)),
    "cannot be a norm",
)
csv("norms of 10^-320", lambda: "step,norm\n" + "".join(f"{i},{i}e-320\n" for i in range(1, 17)), "")
csv("every norm infinite", lambda: "step,norm\n" + "".join(f"{i},inf\n" for i in range(1, 17)), "")
csv("fractions of steps", lambda: table("step").replace("\n10,", "\n10.5,"), "whole numbers")
csv(
    "steps of 2^60 that a float cannot tell apart",
    lambda: "step,norm\n" + "".join(f"{2**60 + i},{i + 1}\n" for i in range(9)),
)
csv("zeros in the middle", lambda: table("step") + "\0" * 100, "")
csv("300,000 blank lines", lambda: table("step") + "\n" * 300_000, "sqrt-linear", 0, slow=True)
csv(
    "a million different texts",
    lambda: "step,norm,tag\n" + "".join(f"{i},{i + 1},{i:060d}x\n" for i in range(400_000)),
    "sqrt-linear",
    0,
    slow=True,
)
csv("half of a surrogate pair", lambda: table("step", "norm\ud800"), "")
csv("comments only", lambda: "# step,norm\n" * 1000, "empty")

document(
    "sound",
    lambda: json.dumps([{"step": i, "norm": (i + 1) ** 0.5} for i in range(0, 300, 10)]),
    "sqrt-linear",
    0,
)
document("100,000 levels of arrays", lambda: "[" * 100_000 + "]" * 100_000, "")
document("100,000 levels of objects", lambda: '{"a":' * 100_000 + "1" + "}" * 100_000, "")
document(
    "lines with 100,000 levels",
    lambda: '{"step":1,"norm":1}\n{"step":2,"norm":' + "[" * 100_000 + "\n{}\n",
    "line 2",
)
document("ten million empty objects", lambda: "[" + "{}," * 10_000_000 + "{}]", "too", slow=True)
document(
    "ten million empty arrays in one line",
    lambda: '{"step":[' + "[]," * 4_000_000 + "[]]}\n{}\n",
    "too",
    slow=True,
)
document(
    "a name of 1 MB above 10,000 numbers",
    lambda: json.dumps({"x" * 1_000_000: {f"a{i}": i for i in range(10_000)}}),
    "",
)
document("names that grow in 20 levels", lambda: nested_names(18, "n" * 30_000), "")
document(
    "the same in lines",
    lambda: (json.dumps({"n" * 100_000: {f"{i}": 1 for i in range(20_000)}}) + "\n") * 3,
    "",
)
document("an integer of 5,000 digits", lambda: f'[{{"step":1,"norm":{"9" * 5000}}}]', "")
document(
    "a step of 4,000 digits",
    lambda: "[" + ",".join(f'{{"step":{i}{"0" * 4000},"norm":{i}}}' for i in range(1, 9)) + "]",
    "",
)
document(
    "columns by row whose rows differ",
    lambda: json.dumps(
        {"step": {str(i): 10 * i for i in range(9)}, "norm": {str(i + 1): (i + 2) ** 0.5 for i in range(9)}}
    ),
    "rows",
)
document(
    "row numbers that are not ASCII digits", lambda: json.dumps({"step": {"²": 1}, "norm": {"²": 1}}), ""
)
document(
    "columns of different lengths",
    lambda: json.dumps({"step": list(range(20)), "norm": [1.5] * 19}),
    "lengths",
)
document(
    "150 MB of one text", lambda: '{"step":[1],"norm":[1],"t":"' + "x" * 150_000_000 + '"}', "", slow=True
)
document(
    "40 MB with one wide character",
    lambda: '[{"step":1,"norm":1,"t":"' + "x" * 40_000_000 + '😀"}]',
    "",
    slow=True,
)
document(
    "200,000 lines with a name of their own",
    lambda: "".join(f'{{"k{i}":1}}\n' for i in range(200_000)),
    "too large",
)
document(
    "true and false for steps", lambda: json.dumps([{"step": i % 2 == 1, "norm": i} for i in range(9)]), ""
)
document("a history of texts", lambda: json.dumps({"log_history": ["a"] * 100}), "log_history")
document("a history that is an object", lambda: json.dumps({"log_history": {"step": 1}}), "log_history")
document(
    "a history of objects in objects",
    lambda: json.dumps({"log_history": [{"step": {"a": 1}, "norm": [1]}]}),
    "",
)
document(
    "escapes in a name",
    lambda: json.dumps([{"step": 1, "norm\x1b[31ma": 1, "norm\x1b[31mb": 2}] * 9),
    "several",
    2,
)
document("half of a surrogate pair", lambda: '[{"step":1,"norm\\ud800":1,"norm b":2}]', "several", 2)


def nested_names(levels: int, name: str) -> str:
    """Objects in objects, each with 60 numbers of its own beside the next."""
    value: dict[str, object] = {}
    for _ in range(levels):
        value = {name: value, **{f"{name[:20_000]}{i}": i for i in range(60)}}
    return json.dumps(value)


add(
    "packed: a CSV file of 1 GB",
    lambda path: path.write_bytes(gzip.compress(bytes(1_000_000_000), 1)),
    "known format",
    suffix=".csv.gz",
    slow=True,
)
add(
    "packed: a sound CSV file",
    lambda path: path.write_bytes(gzip.compress(table("step").encode())),
    "known format",
    suffix=".csv.gz",
)
add("places: a device", lambda path: path.symlink_to("/dev/zero"), "", 2)
add("places: a pipe", lambda path: os.mkfifo(path), "", 2)
add("places: a link to itself", lambda path: path.symlink_to(path), "", 2)
add("places: a file that is 1 TB of nothing", lambda path: (path.touch(), os.truncate(path, 1 << 40)), "")
add(
    "places: a CSV file with 1 TB of nothing",
    lambda path: (path.write_text(table("step") * 3000), os.truncate(path, 1 << 40)),
    "",
    suffix=".csv",
)
