"""Formats that other packages add, as entry points of the group normscope.formats."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from normscope.checkpoints import known_formats, open_series
from normscope.checkpoints.base import Tensor
from normscope.checkpoints.extents import ByteRange, TableCheckpoint
from normscope.checkpoints.formats.registry import (
    FOLDER_FORMATS,
    FORMATS,
    FileFormat,
    FolderFormat,
    file_formats,
    folder_formats,
)
from normscope.errors import CheckpointError, CorruptCheckpoint, PluginError, UnknownFormat

MAGIC = b"RAW1"


def open_raw(file):
    if file.size % 4:
        raise CorruptCheckpoint(f"{file.name} is not a whole number of floats.")
    tensor = Tensor("w", ((file.size - 4) // 4,), "float32", "w")
    return TableCheckpoint("raw", [file], {"w": tensor}, {"w": ByteRange(file, 4)})


def is_raw(file):
    return file.size >= 4 and file.peek(0, 4) == MAGIC


def raw_format(*suffixes):
    return FileFormat("raw floats", suffixes, is_raw, open_raw)


FOLDERS = FolderFormat(
    "a folder of raw floats",
    lambda folder: "weights.raw" in folder.names(),
    lambda folder: open_raw(folder.file("weights.raw")),
)


@pytest.fixture
def install(install_plugins):
    return partial(install_plugins, "formats")


def write(path, *values):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(MAGIC + np.array(values, "<f4").tobytes())


def test_a_folder_of_an_added_format(tmp_path, install):
    for step in (20, 3):
        write(tmp_path / f"{step}.raw", step, 1)
    with pytest.raises(UnknownFormat, match="not a checkpoint in any known format"):
        open_series(tmp_path / "3.raw", steps=[3]).entries[0].open()
    install(raw=raw_format(".raw"))
    series = open_series(tmp_path)
    assert [(entry.label, entry.step) for entry in series.entries] == [("3", 3), ("20", 20)]
    (first, _) = series.describe().rows
    assert (first.format, first.parameters) == ("raw", 2)
    with_values = [np.frombuffer(entry.open().read("w", 0, 8), "<f4").tolist() for entry in series.entries]
    assert with_values == [[3, 1], [20, 1]]


def test_a_damaged_file_of_an_added_format_is_an_error(tmp_path, install):
    install(raw=raw_format(".raw"))
    write(tmp_path / "step_1.raw", 1)
    (tmp_path / "step_2.RAW").write_bytes(b"nonsense")
    with pytest.raises(UnknownFormat, match=r"step_2\.RAW .*Known formats: .*raw floats"):
        open_series(tmp_path).describe()


def test_an_ending_that_is_usually_ignored(tmp_path, install):
    write(tmp_path / "step_1.model", 1)
    (tmp_path / "step_2.model").write_bytes(b"somebody's table")
    install(raw=raw_format(".model"))
    assert [entry.step for entry in open_series(tmp_path).entries] == [1]


def test_a_folder_format(tmp_path, install):
    for step in (1, 2):
        write(tmp_path / f"step_{step}" / "weights.raw", step)
        (tmp_path / f"step_{step}" / "other.pt").write_bytes(b"not read")
    install(raw=FOLDERS)
    assert [entry.step for entry in open_series(tmp_path).entries] == [1, 2]
    assert all(row.format == "raw" for row in open_series(tmp_path).describe().rows)


def test_added_formats_come_after_ours(install):
    install(a=raw_format(".raw"), b=FOLDERS)
    assert file_formats()[:-1] == FORMATS
    assert folder_formats()[:-1] == FOLDER_FORMATS
    assert known_formats().count("raw floats") == 2


def test_an_object_that_is_not_a_format_is_refused(tmp_path, install):
    write(tmp_path / "step_1.pt", 1)
    install(raw="their_module.RAW")
    expected = (
        "the format 'raw' of the package norm-extras should be a FileFormat or a FolderFormat, but is a str"
    )
    with pytest.raises(PluginError, match=expected):
        open_series(tmp_path)


@pytest.mark.parametrize(
    ("raised", "kind", "words"),
    [
        (ValueError("no such part"), CorruptCheckpoint, "damaged .*ValueError: no such part"),
        (ZeroDivisionError("division by zero"), CorruptCheckpoint, "damaged .*division by zero"),
        (KeyError("w"), CorruptCheckpoint, "damaged .*KeyError"),
        (PermissionError(13, "Permission denied"), CheckpointError, "cannot be read: Permission denied"),
        (MemoryError(), CheckpointError, "needs more memory"),
        (UnknownFormat("not one of mine"), UnknownFormat, "^not one of mine$"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_whatever_a_reader_raises_names_the_file(tmp_path, install, raised, kind, words):
    def fails(file):
        raise raised

    install(raw=replace(raw_format(".raw"), open=fails))
    (tmp_path / "step_1.raw").write_bytes(MAGIC + bytes(8))
    with pytest.raises(kind, match=words) as caught:
        open_series(tmp_path).entries[0].open()
    assert type(caught.value) is kind
    assert kind is UnknownFormat or "step_1.raw" in str(caught.value)
