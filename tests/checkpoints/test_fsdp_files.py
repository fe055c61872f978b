"""Files that each rank of FSDP saved by itself, written by real processes, against the model saved whole."""

import shutil
from pathlib import Path

import pytest
import torch

from normscope.checkpoints import open_series
from tests.checkpoints.small_checkpoints import put
from tests.checkpoints.test_rank_layouts import check_bytes, check_rows, refusal, rows

FIXTURES = Path(__file__).parent / "fixtures" / "fsdp"
KINDS = {"fsdp2": 2, "hsdp": 4, "fsdp1": 2}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def whole():
    return torch.load(FIXTURES / "whole.pt")


def test_what_the_ranks_hold_is_the_model(kind):
    checkpoint = check_bytes(FIXTURES / kind, whole())
    assert checkpoint.format == "fsdp"
    assert not checkpoint.notes


def test_the_rows_are_those_of_the_model_saved_whole(tmp_path, kind):
    (tmp_path / "whole").mkdir()
    shutil.copy(FIXTURES / "whole.pt", tmp_path / "whole" / "step_5.pt")
    found = rows(FIXTURES / kind, tmp_path / "ranks.db")
    check_rows(found, rows(tmp_path / "whole", tmp_path / "whole.db"))


def test_a_missing_rank(tmp_path, kind):
    shutil.copytree(FIXTURES / kind, tmp_path / "run")
    (gone,) = (tmp_path / "run").rglob("*rank_1.pt")
    gone.unlink()
    message = refusal(tmp_path / "run")
    assert f"of {KINDS[kind]} ranks, '{gone.name}' is missing" in message
    assert "model_merger" in message


def test_a_copied_rank(tmp_path, kind):
    """The file knows where it belongs: as a copy of another it leaves a hole."""
    shutil.copytree(FIXTURES / kind, tmp_path / "run")
    (first,), (second,) = ((tmp_path / "run").rglob(f"*rank_{i}.pt") for i in (0, 1))
    shutil.copy(first, second)
    if kind == "hsdp":  # the other group of ranks holds the same part
        check_bytes(tmp_path / "run", whole())
    else:
        assert "do not cover" in refusal(tmp_path / "run")


def test_files_of_two_trainings(tmp_path):
    for kind in ("fsdp2", "hsdp"):
        shutil.copytree(FIXTURES / kind, tmp_path / "run", dirs_exist_ok=True)
    assert "of 2 and of 4 ranks" in refusal(tmp_path / "run")


def test_only_the_first_rank_of_eight(tmp_path):
    for step in (1, 2):
        put(tmp_path / f"step_{step}" / "model_world_size_8_rank_0.pt")
    assert "of 8 ranks" in refusal(tmp_path)


def test_optimizer_files_of_verl_are_not_the_model(tmp_path):
    shutil.copytree(FIXTURES / "fsdp2", tmp_path / "run")
    folder = tmp_path / "run" / "global_step_5"
    for rank in range(2):
        torch.save({"state": {}}, folder / f"optim_world_size_2_rank_{rank}.pt")
        torch.save({"rng": 1}, folder / f"extra_state_world_size_2_rank_{rank}.pt")
    assert [entry.step for entry in open_series(tmp_path / "run").entries] == [5]
    check_bytes(tmp_path / "run", whole())
