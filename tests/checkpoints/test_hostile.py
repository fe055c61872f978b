"""Crafted inputs: whatever is in a file, a scan ends in time, in little memory, with one sentence."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .hostile import (
    archives,
    dcp_folders,
    folders,
    gguf_files,
    hdf5_files,
    llama_files,
    msgpack_files,
    names,
    onnx_files,
    pickled_arrays,
    pickles,
    quantised_files,
    shard_indexes,
    tables,
    zarr_folders,
)
from .hostile import safetensors_files as safetensors_cases
from .hostile.case import CASES, SLOW

MODULES = (archives, dcp_folders, folders, gguf_files, llama_files, names, pickles, tables, zarr_folders)
MODULES = (*MODULES, hdf5_files, onnx_files, quantised_files, safetensors_cases, shard_indexes)
MODULES = (*MODULES, msgpack_files, pickled_arrays)
MOST_SECONDS, MOST_BYTES, MOST_LINES, LONGEST = 20, 500_000_000, 3, 500


@pytest.fixture(scope="module")
def runner():
    command = [sys.executable, Path(__file__).parent / "hostile" / "runner.py"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


def scan(runner, folder):
    runner.stdin.write(f"{folder}\n")
    runner.stdin.flush()
    return json.loads(runner.stdout.readline())


def parameters():
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW), id=name) for name in CASES]


@pytest.mark.parametrize("name", parameters())
def test_a_crafted_input(name, tmp_path, runner):
    case = CASES[name]
    folder = tmp_path / "source"
    folder.mkdir()
    case.write(folder)
    found = scan(runner, folder)
    printed, said = (folder.with_suffix(f".{part}").read_text() for part in ("out", "err"))
    assert found["code"] == case.code, (found, said[-2000:])
    assert found["cpu"] < MOST_SECONDS  # not the wall time, which others on the machine lengthen
    assert found["bytes"] < MOST_BYTES
    assert "Traceback" not in said and "unexpected" not in said, said
    assert case.says in (said if case.code else printed), said
    if case.code:
        assert said.count("\n") == 1 and len(said) <= LONGEST + 1, said
    assert (printed + said).replace("\n", "").isprintable()


def test_the_corpus_is_large():
    assert len(CASES) >= 320  # without tensorstore, those of Orbax are missing
    assert CASES.keys() >= SLOW
