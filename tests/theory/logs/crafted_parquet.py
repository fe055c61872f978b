"""Crafted Parquet files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from .crafted_logs import add


def parquet(path: Path, columns: dict[str, object], **options: object) -> None:
    """Write a Parquet file, through pyarrow."""
    import pyarrow
    from pyarrow import parquet as files

    files.write_table(pyarrow.table(columns), path, **options)


def rows(count: int) -> dict[str, object]:
    import numpy as np

    return {"step": np.zeros(count, np.int64), "norm": np.ones(count)}


def edited(path: Path, change: Callable[[bytearray], None]) -> None:
    """A sound Parquet file with some bytes changed."""
    import numpy as np

    parquet(path, {"step": np.arange(40) * 10, "norm": np.sqrt(np.arange(40) + 1.0)})
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def one_text(path: Path, count: int, length: int, **options: object) -> None:
    """One long text, stored once and meant `count` times."""
    import pyarrow

    text = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0] * count, pyarrow.int32()), pyarrow.array(["x" * length])
    )
    parquet(
        path, {"step": list(range(count)), "norm": [i + 1.0 for i in range(count)], "tag": text}, **options
    )


def nested_structs(levels: int) -> dict[str, object]:
    import pyarrow

    value = pyarrow.array([1.5] * 9)
    for _ in range(levels):
        value = pyarrow.StructArray.from_arrays([value, value], ["a", "b"])
    return {"step": list(range(9)), "norm": [i + 1.0 for i in range(9)], "deep": value}


def with_index(path: Path, index: object) -> None:
    """A file whose metadata of pandas has this index."""
    import pyarrow
    from pyarrow import parquet as files

    table = pyarrow.table({"norm": [i + 1.0 for i in range(20)]})
    stored = index if isinstance(index, bytes) else json.dumps({"index_columns": index}).encode()
    files.write_table(table.replace_schema_metadata({b"pandas": stored}), path)


RANGE = {"kind": "range", "name": "step", "start": 0, "stop": 200, "step": 10}

add("parquet: sound", lambda path: edited(path, lambda data: None), "sqrt-linear", 0)
add(
    "parquet: 40 million rows of one number",
    lambda path: parquet(path, rows(40_000_000)),
    "too large",
    slow=True,
)
add("parquet: 4 million rows of one number", lambda path: parquet(path, rows(4_000_000)), "too large")
add(
    "parquet: a text of 1 MB 20,000 times",
    lambda path: one_text(path, 20_000, 1_000_000),
    "sqrt-linear",
    0,
    slow=True,
)
add(
    "parquet: a text of 1 MB 20,000 times, without its type",
    lambda path: one_text(path, 20_000, 1_000_000, store_schema=False),
    "sqrt-linear",
    0,
)
add(
    "parquet: structs in structs, 2^14 of them",
    lambda path: parquet(path, nested_structs(14)),
    "sqrt-linear",
    0,
    slow=True,
)
add(
    "parquet: structs in structs, 2^16 of them",
    lambda path: parquet(path, nested_structs(16)),
    "too many",
    slow=True,
)
add(
    "parquet: a footer of 2^31 bytes",
    lambda path: edited(path, lambda data: data.__setitem__(slice(-8, -4), b"\xff\xff\xff\x7f")),
    "",
)
add(
    "parquet: a footer of zeros",
    lambda path: edited(path, lambda data: data.__setitem__(slice(-300, -8), bytes(292))),
    "",
)
add("parquet: only the first letters", lambda path: path.write_bytes(b"PAR1"), "")
add(
    "parquet: an encrypted footer",
    lambda path: edited(path, lambda data: data.__setitem__(slice(-4, None), b"PARE")),
    "",
)
add(
    "parquet: pages of ones",
    lambda path: edited(path, lambda data: data.__setitem__(slice(20, 300), b"\xff" * 280)),
    "",
)
add("parquet: an index that is sound", lambda path: with_index(path, [RANGE]), "sqrt-linear", 0)
add(
    "parquet: an index of 10^18 rows",
    lambda path: with_index(path, [{**RANGE, "stop": 10**18}]),
    "no step column",
)
add("parquet: an index of step 0", lambda path: with_index(path, [{**RANGE, "step": 0}]), "")
add("parquet: an index of texts", lambda path: with_index(path, [{**RANGE, "start": "a"}]), "")
add("parquet: an index that is a number", lambda path: with_index(path, 5), "")
add(
    "parquet: an index without a start",
    lambda path: with_index(path, [{"name": "step", "kind": "range"}]),
    "",
)
add(
    "parquet: an index whose name is a list", lambda path: with_index(path, [{**RANGE, "name": ["step"]}]), ""
)
add("parquet: metadata that is not JSON", lambda path: with_index(path, b"{" * 100_000), "")
