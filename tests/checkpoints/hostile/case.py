"""The list of crafted inputs, and how a case is added to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CASES: dict[str, Case] = {}


@dataclass(frozen=True)
class Case:
    """A crafted input: `write` puts it into an empty folder, which is then scanned.

    `code` is the exit code that the scan must have, and `says` a part of what it must print.
    """

    write: Callable[[Path], object]
    says: str = ""
    code: int = 1


def add(name: str, write: Callable[[Path], object], says: str = "", code: int = 1) -> None:
    """Add a case; every name is used once."""
    assert name not in CASES, name
    CASES[name] = Case(write, says, code)


def add_file(name: str, file: str, content: Callable[[], bytes], says: str = "", code: int = 1) -> None:
    """Add a case that is one file."""
    add(name, lambda folder: (folder / file).write_bytes(content()), says, code)


SLOW = frozenset(
    (
        "arrays: a million small arrays",
        "arrays: a tuple of trees shared",
        "arrays: an array shared 2^20 times",
        "arrays: nested 100,000 deep",
        "arrays: one array under 250,000 names",
        "msgpack: 120,000 chunks",
        "msgpack: 250,000 arrays",
        "msgpack: 400,000 empty maps",
        "msgpack: many lists of many",
        "msgpack: names of ten megabytes",
        "dcp: 1,000 tensors in one place",
        "hdf5: 10,000 empty groups",
        "onnx: 300,000 tensors",
        "onnx: graphs 1,000,000 deep",
        "onnx: two million empty nodes",
        "dcp: 5,000 keys that share 5,000 chunks",
        "dcp: metadata of ten million marks",
        "folders: 3,000 empty folders",
        "folders: a web of links",
        "gguf: 2,000 tensors in one place",
        "gguf: a key of 150 MB",
        "gguf: a text of 150 MB with one wide character",
        "gguf: eight million empty texts",
        "gguf: three million empty texts",
        "index: 100,000 missing tensors",
        "names: a folder that is not UTF-8",
        "npz: 100 MB of zeros, deflated",
        "npz: 2,000 members, deflated",
        "npz: 300 MB of zeros, deflated",
        "npz: a Fortran array of 100 MB, deflated",
        "npz: sound",
        "quantised: 5,000 weights of one element",
        "quantised: a row of 20 million elements",
        "safetensors: 250,000 empty tensors",
        "safetensors: names of 40 MB",
        "tensorflow: 200,000 slices",
        "tensorflow: a block listed 50,000 times",
        "tensorflow: a long key repeated 200,000 times",
        "tensorflow: an entry that is a bomb of fields",
        "tensorflow: entries that overlap",
        "tensorflow: snappy of single bytes",
        "torch: 100,000 integers with one hash",
        "torch: 100,000 levels of lists",
        "torch: 100,000 levels of tuples",
        "torch: 150 MB of text with one wide character",
        "torch: 20,000 keys that share one structure",
        "torch: 20,000 wrappers that share one structure without tensors",
        "torch: 200 texts of a megabyte with a wide character",
        "torch: 5,000 views of one storage",
        "torch: a buffer list of a million",
        "torch: a long list walked 20,000 times",
        "torch: a long tuple as 100,000 keys",
        "torch: a million calls",
        "torch: a million pairs in one dictionary",
        "torch: a tensor shared 2^20 times",
        "torch: an integer of a megabyte as 100,000 keys",
        "torch: five million duplicates",
        "torch: five million empty lists",
        "torch: four million empty dictionaries",
        "torch: six million memo entries",
        "torch: ten million marks",
        "torch: three million empty byte strings",
        "torch: three million empty texts",
        "torch: three million names",
    )
)
"""Cases that take half a second or more, with the time to write them."""
