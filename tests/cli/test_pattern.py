"""--pattern, in every command that reads a series."""

import pytest
import torch

import normscope as ns
from normscope.errors import UsageError
from tests.cli.calling import call, call_json
from tests.conftest import random_walk

EPOCHS = r"model_(?P<epoch>\d+)_"


@pytest.fixture
def folder(tmp_path):
    states = random_walk([1, 2, 3])
    for step, name in ((1, "model_1_7_100"), (2, "model_2_8_200"), (3, "model_3_9_300"), (3, "best")):
        torch.save(states[step], tmp_path / f"{name}.pt")
    return tmp_path


def test_a_scan_and_what_it_would_read(folder):
    found = call_json("scan", folder, "--pattern", EPOCHS, "--run", folder / "run.db")
    assert (found["stages"][0]["first_step"], found["stages"][0]["last_step"]) == (1, 3)
    expected = [{"label": "best", "reason": "its name does not match --pattern"}]
    assert found["left_out"] == expected
    dry = call_json("scan", folder, "--pattern", EPOCHS, "--dry-run")
    assert [entry["step"] for entry in dry["entries"]] == [1, 2, 3]
    assert (dry["left_out"], dry["notes"]) == (expected, ["steps are epochs, read from the names"])


def test_an_audit(folder):
    assert call_json("audit", folder, "--pattern", r"_(?P<step>\d+)$")["checkpoints"] == 3


@pytest.mark.parametrize("command", ["scan", "audit"])
def test_wrong_patterns_are_wrong_calls(folder, command):
    for pattern in ("(", r"\d+", r"zzz(?P<step>\d+)"):
        assert call(command, folder, "--pattern", pattern).code == 2
    assert call(command, folder, "--pattern", EPOCHS, "--steps", "1,2,3").code == 2


def test_from_python(folder):
    with ns.scan(folder, folder / "run.db", pattern=EPOCHS) as run:
        assert [row.step for row in run.checkpoints()] == [1, 2, 3]
    assert ns.audit(folder, pattern=EPOCHS).checkpoints == 3
    with pytest.raises(UsageError, match="regular expression"):
        ns.ScanConfig(pattern="(")
