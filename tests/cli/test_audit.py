"""normscope audit as a user calls it: what it prints, its JSON, its exit codes."""

import json

import pytest
import torch
import typer
from safetensors.torch import save_file
from typer.testing import CliRunner

from normscope.cli.audit import audit


@pytest.fixture
def folder(tmp_path):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(40, 50, generator=generator)
    (tmp_path / "series").mkdir()
    for step in range(0, 8000, 1000):
        weight = weight + 0.05 * torch.randn(40, 50, generator=generator)
        save_file({"h.0.mlp.c_fc.weight": weight}, tmp_path / "series" / f"step{step}.safetensors")
    return tmp_path / "series"


def call(*arguments):
    app = typer.Typer()
    app.command()(audit)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_sound(folder):
    result = call(folder)
    assert result.exit_code == 0
    assert "8 checkpoints, every 1000" in result.stdout and "sound:" in result.stdout


def test_not_sound(folder):
    (folder / "step3000.safetensors").unlink()
    result = call(folder)
    assert result.exit_code == 1
    assert "gap: checkpoints come every 1000 steps, but step 3000 is missing  [90% sure]" in result.stdout
    assert "not sound: 1 finding" in result.stdout


def test_json_is_stable(folder):
    (folder / "step3000.safetensors").unlink()
    result = call(folder, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert {"sound", "findings", "source", "checkpoints", "spacing", "checked"} <= set(found)
    (finding,) = found["findings"]
    assert finding["kind"] == "gap" and finding["steps"] == [3000] and finding["confidence"] == 0.9
    assert set(finding) >= {"kind", "steps", "evidence", "confidence", "numbers", "stage"}


def test_names_cannot_drive_the_terminal(folder):
    save_file({"\x1b[31mred": torch.ones(3, 3)}, folder / "step3000.safetensors")
    result = call(folder)
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout and "red" in result.stdout


def test_run_file_is_kept(folder, tmp_path):
    assert call(folder, "--run", tmp_path / "r.db").exit_code == 0
    assert call(tmp_path / "r.db").exit_code == 0


def test_steps_that_are_not_numbers(folder):
    result = call(folder, "--steps", "1,two")
    assert "integers separated by commas" in str(result.exception)
