"""Whole folders as trainers leave them: what is read, what is named as left out, what is refused."""

import json
from pathlib import Path

import pytest
import torch

from normscope.checkpoints import open_series
from tests.checkpoints.small_checkpoints import put
from tests.checkpoints.test_doubtful_folders import glob_in, pattern_in, refusal
from tests.checkpoints.test_selection import left_out, make, steps


def trainer_run(folder, *numbers, last=None):
    """What Hugging Face's Trainer writes: numbered folders, and the last model around them."""
    for number in numbers:
        put(folder / f"checkpoint-{number}/model.safetensors", number)
        torch.save({"state": {}, "param_groups": []}, folder / f"checkpoint-{number}/optimizer.pt")
    put(folder / "model.safetensors", last or numbers[-1])
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": last or numbers[-1]}))
    return folder


# -- folders of runs --------------------------------------------------------------------------------


def test_the_run_in_a_subfolder_is_read_and_not_only_its_last_model(tmp_path):
    trainer_run(tmp_path / "outputs/run1", 500, 1000, last=1100)
    assert steps(open_series(tmp_path / "outputs")) == [500, 1000, 1100]


def test_the_last_models_of_two_runs_are_no_series(tmp_path):
    trainer_run(tmp_path / "run1", 500, 1000)
    trainer_run(tmp_path / "run2", 500, 2000)
    assert "several series: run1/ (3 checkpoints), run2/ (3 checkpoints)" in refusal(tmp_path)


def test_folders_that_only_store_steps_may_be_runs(tmp_path):
    put(tmp_path / "out-wide/ckpt.pt", 1, iter_num=5000)
    put(tmp_path / "out-deep/ckpt.pt", 2, iter_num=8000)
    message = refusal(tmp_path)
    assert "may be of different runs: out-deep (step 8000), out-wide (step 5000)" in message
    assert steps(open_series(tmp_path, steps=[8000, 5000])) == [5000, 8000]


def test_folders_that_are_named_by_dates_are_a_series(tmp_path):
    """As in SpeechBrain."""
    days = ("2024-01-01+12-00-00+00", "2024-01-01+13-00-00+00", "2024-01-02+09-30-00+00")
    for i, day in enumerate(days):
        put(tmp_path / f"CKPT+{day}/model.ckpt", i, step=100 * (i + 1))
    series = open_series(tmp_path)
    assert steps(series) == [100, 200, 300]
    assert "the names have no steps; they are read from inside" in series.notes[0]


def test_an_average_in_a_folder_of_its_own_is_not_the_next_checkpoint(tmp_path):
    make(tmp_path, "step_100.pt", "step_200.pt", "ema/step_300.pt")
    series = open_series(tmp_path / "**/*.pt")
    assert steps(series) == [100, 200]
    assert "EMA" in left_out(series)["ema/step_300"]
    assert steps(open_series(tmp_path / "ema/*.pt")) == [300]


# -- nothing is dropped without a word ----------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["step_300.ot", "step_300.zip", "step_300.tar.gz"],
)
def test_a_format_that_is_not_read_is_named(tmp_path, name):
    make(tmp_path, "step_100.pt", "step_200.pt")
    (tmp_path / name).write_bytes(b"\x89something")
    assert left_out(open_series(tmp_path)) == {name: "a model in a format that is not read, by its name"}


def test_files_that_are_no_models_are_not_named(tmp_path):
    make(tmp_path, "step_100.pt", "step_200.pt")
    for name in (
        "eval_step_100.json",
        "samples_step_100.png",
        "train.log",
        "data.zip",
        "vocab.txt",
        "latest",
    ):
        (tmp_path / name).write_text("x")
    assert not left_out(open_series(tmp_path))


def test_unfinished_and_unreadable_files_are_named(tmp_path):
    make(tmp_path, "step_100.pt", "step_200.pt")
    for name in ("step_300.pt.tmp", "step_300.safetensors.incomplete", "step_400"):
        (tmp_path / name).write_bytes(b"half")
    assert left_out(open_series(tmp_path)).keys() == {
        "step_300.pt.tmp",
        "step_300.safetensors.incomplete",
        "step_400",
    }


def test_a_step_without_a_model_is_named(tmp_path):
    """The disk was full, or the model is still being written."""
    trainer_run(tmp_path, 500, 1000)
    torch.save({"state": {}, "param_groups": []}, put(tmp_path / "checkpoint-1500/optimizer.pt"))
    (tmp_path / "checkpoint-2000").mkdir()
    reasons = left_out(open_series(tmp_path))
    assert reasons["checkpoint-1500"] == "contains no checkpoint, only optimizer.pt"
    assert reasons["checkpoint-2000"] == "is empty"


@pytest.mark.parametrize("below", ["2_Dense/model.safetensors", "global_step{}/mp_rank_00_model_states.pt"])
def test_a_model_below_the_model_is_named(tmp_path, below):
    """A layer of sentence-transformers; the parts of DeepSpeed in a folder of Trainer."""
    trainer_run(tmp_path, 500, 1000)
    for step in (500, 1000):
        put(tmp_path / f"checkpoint-{step}" / below.format(step), step + 1)
    series = open_series(tmp_path)
    assert steps(series) == [500, 1000]
    folder = below.split("/")[0]
    assert left_out(series).keys() >= {f"checkpoint-{step}/{folder.format(step)}" for step in (500, 1000)}


def test_a_folder_beside_files_is_named(tmp_path):
    put(tmp_path / "a.pt", 1, step=1)
    put(tmp_path / "b.pt", 2, step=2)
    put(tmp_path / "other/model.safetensors")
    assert "other/" in left_out(open_series(tmp_path))


# -- numbers that are no steps ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        ("R-50.pkl", "R-101.pkl"),
        ("ViT-B-16.pt", "ViT-B-32.pt"),
        ("resnet_18.pth", "resnet_50.pth", "resnet_101.pth"),
        ("swin_base_patch4_window7_224.pth", "swin_base_patch4_window7_384.pth"),
        ("f0G32k.pth", "f0G40k.pth", "f0G48k.pth"),
        ("Yarn-Mistral-7b-64k/model.safetensors", "Yarn-Mistral-7b-128k/model.safetensors"),
        ("4f2a9b7c-1234-5678-9abc-112233445566.pt", "4f2a9b7c-1234-5678-9abc-112233445577.pt"),
    ],
)
def test_sizes_of_models_are_no_steps(tmp_path, names):
    assert "--steps" in refusal(make(tmp_path, *names))


def test_the_other_names_settle_what_a_number_means(tmp_path):
    series = open_series(make(tmp_path, *(f"resnet_{epoch}.pth" for epoch in (10, 20, 30, 40, 50, 60))))
    assert steps(series) == [10, 20, 30, 40, 50, 60]


def test_the_hash_of_a_model_zoo_is_no_step(tmp_path):
    series = open_series(make(tmp_path, "model_0004999.pth", "model_0009999.pth", "model_final_280758.pth"))
    assert steps(series) == [4999, 9999]
    assert "no step" in left_out(series)["model_final_280758"]


def test_what_agents_remember_is_no_checkpoint(tmp_path):
    kinds = (
        "rl_model_{}_steps.pt",
        "rl_model_replay_buffer_{}_steps.pkl",
        "rl_model_vecnormalize_{}_steps.pkl",
    )
    series = open_series(make(tmp_path, *(kind.format(step) for kind in kinds for step in (100, 200))))
    assert steps(series) == [100, 200]
    assert len(left_out(series)) == 4


def test_a_step_inside_counts_more_than_a_bare_number(tmp_path):
    make(tmp_path, "model_1.pt", "model_2.pt", model_1=1000, model_2=2000)
    assert steps(open_series(tmp_path / "model_2.pt")) == [2000]
    assert open_series(tmp_path).notes == (
        "no word in the names says what their numbers count; they are taken as steps, "
        "although model_2 stores the step 2000",
    )


@pytest.mark.parametrize(
    "stored",
    [
        {"optimizer_history": [{"num_updates": 1}, {"num_updates": 350}]},
        {"meta": {"epoch": 3, "iter": 350}},
        {"batch_idx_train": 350},
        {"train_step": 350},
    ],
    ids=["fairseq", "mmengine", "icefall", "hand-written"],
)
def test_where_trainers_store_the_step(tmp_path, stored):
    make(tmp_path, "step_100.pt", "step_200.pt")
    put(tmp_path / "last.pt", 9, **stored)
    assert steps(open_series(tmp_path)) == [100, 200, 350]


# -- what a refusal tells to type works -------------------------------------------------------------------


def test_the_pattern_reads_the_number_that_changes(tmp_path):
    message = refusal(make(tmp_path, *(f"epoch={epoch}_epochs=100.pt" for epoch in (1, 2, 3))))
    assert steps(open_series(tmp_path, pattern=pattern_in(message))) == [1, 2, 3]


def test_no_pattern_is_offered_where_none_can_be_right(tmp_path):
    message = refusal(make(tmp_path, *(f"model.pt.ep0.{step}" for step in (2000, 4000))))
    assert "--pattern" not in message
    assert "--steps" in message


def test_the_pattern_is_for_the_larger_group(tmp_path):
    message = refusal(make(tmp_path, "bad-model-0.pt", *(f"epoch-{epoch}.pt" for epoch in (28, 29, 30))))
    assert steps(open_series(tmp_path, pattern=pattern_in(message))) == [28, 29, 30]


def test_the_glob_for_one_of_several_networks(tmp_path):
    for step in (500, 1000):
        put(tmp_path / f"checkpoint-{step}/unet/diffusion_pytorch_model.safetensors", step)
        put(tmp_path / f"checkpoint-{step}/unet_two/diffusion_pytorch_model.safetensors", step + 1)
    series = open_series(glob_in(refusal(tmp_path)))
    assert steps(series) == [500, 1000]
    assert all("/unet/" in entry.source for entry in series.entries)


def test_fixtures_do_not_name_the_machine_that_wrote_them():
    fixtures = Path(__file__).parent / "fixtures"
    files = [path for path in fixtures.rglob("*") if path.is_file()]
    assert len(files) > 100
    assert [f for f in files if b"/tmp/" in (text := f.read_bytes()) or b"site-packages" in text] == []
