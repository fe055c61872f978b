"""Mutants of every format end with right numbers or an error of ours, in little time and memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("gguf")  # an extra, which also judges
pytest.importorskip("msgpack")
pytest.importorskip("h5py")
pytest.importorskip("huggingface_hub")
pytest.importorskip("tensorstore")

FORMATS = (
    "safetensors", "safetensors index", "torch zip", "torch legacy", "dcp", "npz", "gguf", "llama2.c",
    "ranks", "quantised", "flax", "pickled arrays", "hdf5", "onnx", "tensorflow", "orbax", "remote", "hub",
)  # fmt: skip


def faults(formats, cases):
    command = [sys.executable, "-m", "tests.fuzz", *formats, "--cases", str(cases), "--json"]
    root = Path(__file__).parents[2]
    run = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    reports = [json.loads(line) for line in run.stdout.splitlines()]
    assert [report["format"] for report in reports] == list(formats), run.stderr[-2000:]
    assert all(sum(report["kinds"].values()) == cases for report in reports)
    return {report["format"]: report["faults"] for report in reports if report["faults"]}


def test_a_sample_of_mutants():
    assert not faults(FORMATS, 20)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_ten_thousand_mutants(name):
    assert not faults([name], 10_000)


def test_the_table_of_formats_is_complete():
    from .grammars import GRAMMARS

    assert tuple(GRAMMARS) == FORMATS
