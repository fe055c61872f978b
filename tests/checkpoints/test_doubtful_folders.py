"""Folders in which some names look like steps and others do not: each refusal, and what it tells to type."""

import re

import pytest
import torch

from normscope.checkpoints import open_series
from normscope.checkpoints.series.names import parse_label
from normscope.errors import CheckpointError
from tests.checkpoints.small_checkpoints import put
from tests.checkpoints.test_selection import left_out, make, steps


def refusal(folder, **options):
    with pytest.raises(CheckpointError) as refused:
        open_series(folder, **options)
    return str(refused.value)


def pattern_in(message):
    return re.search(r"--pattern '([^']+)'", message)[1]


def glob_in(message):
    return re.search(r"the glob '([^']+)'", message)[1]


# -- numbers that may be steps or not ----------------------------------------------------------


@pytest.mark.parametrize("name", ["step_-1", "epoch=-1", "checkpoint_-1", "model_-1", "iter:-1"])
def test_a_negative_number_is_no_step(name):
    label = parse_label(name)
    assert label.number is None
    assert label.kind == "several"


@pytest.mark.parametrize("name", ["step-1", "step_1", "step--1", "epoch-1", "model-1", "loss_-1.5_step_1"])
def test_a_hyphen_that_separates_is_no_sign(name):
    assert parse_label(name).number == 1


def test_a_checkpoint_before_the_first_is_not_step_one(tmp_path):
    message = refusal(make(tmp_path, "step_-1.pt", "step_0.pt", "step_100.pt"))
    series = open_series(tmp_path, pattern=pattern_in(message))
    assert steps(series) == [0, 100]
    assert "step_-1" in left_out(series)


def test_sizes_among_steps_are_read_together_or_not_at_all(tmp_path):
    message = refusal(make(tmp_path, "model_500K.pt", "model_1M.pt", "model_1.5M.pt"))
    assert steps(open_series(tmp_path, pattern=pattern_in(message))) == [500_000, 1_000_000, 1_500_000]


@pytest.mark.parametrize(
    "names",
    [
        ("00.pt", "7c.pt", "9a.pt"),
        ("1234567.pt", "7654321.pt", "9e8d7c6.pt"),
        ("run-10203040.pt", "run-1a2b3c4d.pt"),
        ("00/4f2a9b7c.pt", "7c/1b2c3d4e.pt", "9a/aa11bb22.pt"),
    ],
)
def test_a_hash_without_letters_is_no_step(tmp_path, names):
    message = refusal(make(tmp_path, *names))
    assert "hashes" in message or "no step" in message
    assert steps(open_series(tmp_path, steps=range(len(names)))) == list(range(len(names)))


def test_a_few_numbered_adapters_are_not_the_series_of_many_doubtful_models(tmp_path):
    names = [f"hf_model_{part:04}_{epoch}.pt" for epoch in range(3) for part in (1, 2)]
    for i, name in enumerate(names):
        torch.save({f"part{i % 2}": torch.full((2,), float(i))}, tmp_path / name)
    make(tmp_path, "adapter_0.pt", "adapter_1.pt", "adapter_2.pt")
    message = refusal(tmp_path)
    assert "not clear which number is the step: hf_model_0001_0" in message
    again = refusal(tmp_path, pattern=pattern_in(message))
    assert "no tensor in common. If they are parts of one checkpoint, join them" in again


# -- what a refusal tells to type works -----------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "count"),
    [
        ([f"{epoch}_net_{net}.pth" for epoch in (5, 10, 15) for net in ("D_A", "D_B", "G_A")], 3),
        (["seed0_step1000.pt", "seed1_step1000.pt", "seed2_step1000.pt"], 1),
        (["vit_patch16_224.pth", "vit_patch32_224.pth"], 1),
    ],
)
def test_the_suggested_pattern_chooses_one_form(tmp_path, names, count):
    message = refusal(make(tmp_path, *names))
    assert len(open_series(tmp_path, pattern=pattern_in(message)).entries) == count


def test_a_glob_for_one_rank(tmp_path):
    for step in (100, 200, 300):
        for rank in (0, 1):
            put(tmp_path / f"iter_{step:07}/mp_rank_{rank:02}/model_optim_rng.pt", step + rank)
    series = open_series(f"{tmp_path}/*/mp_rank_00", steps=[100, 200, 300])
    assert ["mp_rank_00" in entry.source for entry in series.entries] == [True] * 3
    (note,) = series.notes
    assert "mp_rank_00 is read as a whole checkpoint, but there are others beside it" in note


def test_a_lone_later_rank_is_a_part(tmp_path):
    put(tmp_path / "consolidated.01.pth")
    assert "of 2 ranks, 'consolidated.00.pth' is missing" in refusal(tmp_path)


def test_the_glob_for_one_of_several_models_takes_no_other_file(tmp_path):
    for step in (100, 200):
        put(tmp_path / f"rl_{step}_steps/policy.pth", step)
        torch.save({"state": {}, "param_groups": []}, tmp_path / f"rl_{step}_steps/policy.optimizer.pth")
        put(tmp_path / f"rl_{step}_steps/variables.pth", step + 1)
    chosen = glob_in(refusal(tmp_path))
    series = open_series(chosen)
    assert steps(series) == [100, 200]
    assert all(entry.source.endswith("/policy.pth") for entry in series.entries)


def test_a_folder_with_brackets_in_its_name(tmp_path):
    folder = tmp_path / "run[1]"
    folder.mkdir()
    message = refusal(make(folder, *(f"{net}_{i}.pt" for net in ("gen", "disc") for i in range(3))))
    assert steps(open_series(glob_in(message))) == [0, 1, 2]


@pytest.mark.parametrize("names", [["consolidated.00.pth"], ["a.pt", "b.pt"], ["v1.pt", "v2.pt", "v3.pt"]])
def test_the_steps_to_give_are_as_many_as_the_checkpoints(tmp_path, names):
    message = refusal(make(tmp_path, *names))
    given = [int(step) for step in re.search(r"--steps ([0-9,]+)", message)[1].split(",")]
    assert steps(open_series(tmp_path, steps=given)) == given


# -- a file beside the model of its folder ----------------------------------------------------------


def test_a_small_file_does_not_hide_the_model_in_a_subfolder(tmp_path):
    for step in (10, 20):
        put(tmp_path / f"global_step_{step}/actor/model_world_size_1_rank_0.pt", step)
        torch.save({"epoch": 1}, tmp_path / f"global_step_{step}/data.pt")
    series = open_series(tmp_path)
    assert steps(series) == [10, 20]
    assert all(entry.source.endswith("actor/model_world_size_1_rank_0.pt") for entry in series.entries)
    assert list(left_out(series)) == ["global_step_10/data.pt", "global_step_20/data.pt"]


def test_a_model_keeps_its_place_before_a_copy_in_a_subfolder(tmp_path):
    for step in (10, 20):
        put(tmp_path / f"step-{step}/lit_model.pth", step)
        put(tmp_path / f"step-{step}/converted/model.safetensors", step)
    series = open_series(tmp_path)
    assert all(entry.source.endswith("lit_model.pth") for entry in series.entries)
    assert list(left_out(series)) == [f"step-{step}/converted/model.safetensors" for step in (10, 20)]


def test_a_pointer_of_git_lfs_is_called_by_its_name(tmp_path):
    path = tmp_path / "step_1.pt"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(CheckpointError, match="git lfs pull"):
        open_series(path).entries[0].open()
