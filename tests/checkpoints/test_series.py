"""Folders, files and globs become ordered series."""

import json
import re

import pytest
import torch
from safetensors.torch import save_file

from normscope.checkpoints import open_series
from normscope.errors import CheckpointError, CorruptCheckpoint, UnknownFormat, UsageError
from tests.checkpoints.small_checkpoints import put


def steps(series):
    return [entry.step for entry in series.entries]


def test_a_folder_of_files_is_ordered_by_number(tmp_path):
    for step in (1000, 200, 30):
        put(tmp_path / f"step_{step}.safetensors", step)
    series = open_series(tmp_path)
    assert steps(series) == [30, 200, 1000]
    assert series.name == str(tmp_path)
    with_values = [bytes(e.open().read("w", 0, 4)) for e in series.entries]
    assert with_values == [torch.tensor(float(s)).numpy().tobytes() for s in (30, 200, 1000)]


def test_other_files_are_ignored(tmp_path):
    for step in (1, 2):
        folder = tmp_path / f"checkpoint-{step}"
        put(folder / "model.safetensors")
        for name in ("optimizer.pt", "scheduler.pt", "training_args.bin", "rng_state_0.pth", "scaler.pt"):
            torch.save({"state": {}, "param_groups": []}, folder / name)
        for name in ("config.json", "trainer_state.json", "tokenizer.model", "README.md", "merges.txt"):
            (folder / name).write_text("{}")
    (tmp_path / "logs").mkdir()
    (tmp_path / "README.md").write_text("hello")
    put(tmp_path / "model.safetensors")
    series = open_series(tmp_path)
    assert steps(series) == [1, 2]
    assert [entry.label for entry in series.entries] == ["checkpoint-1", "checkpoint-2"]
    assert [(each.label, each.reason) for each in series.left_out] == [
        ("model", "the same weights as checkpoint-2")
    ]


def test_subfolders_of_shards(tmp_path):
    for step in (5, 10):
        folder = tmp_path / f"global_step{step}"
        names = {}
        for shard in (1, 2):
            path = folder / f"model-0000{shard}-of-00002.safetensors"
            path.parent.mkdir(exist_ok=True)
            save_file({f"w{shard}": torch.ones(2)}, path)
            names[f"w{shard}"] = path.name
        if step == 5:
            (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    series = open_series(str(tmp_path))
    assert steps(series) == [5, 10]
    assert [set(entry.open().tensors) for entry in series.entries] == [{"w1", "w2"}] * 2


def test_a_missing_shard(tmp_path):
    folder = tmp_path / "step1"
    folder.mkdir()
    save_file({"w": torch.ones(2)}, folder / "model-00001-of-00002.safetensors")
    with pytest.raises(CorruptCheckpoint, match="one of 2 shards"):
        open_series(tmp_path).entries[0].open()


def test_sharded_pytorch(tmp_path):
    folder = tmp_path / "step7"
    folder.mkdir()
    for shard in (1, 2):
        torch.save({f"w{shard}": torch.ones(shard)}, folder / f"pytorch_model-0000{shard}-of-00002.bin")
    weight_map = {f"w{shard}": f"pytorch_model-0000{shard}-of-00002.bin" for shard in (1, 2)}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    checkpoint = open_series(tmp_path).entries[0].open()
    assert {name: tensor.shape for name, tensor in checkpoint.tensors.items()} == {"w1": (1,), "w2": (2,)}
    assert len({tensor.storage for tensor in checkpoint.tensors.values()}) == 2


def test_layouts_of_trainers(tmp_path):
    put(tmp_path / "deepspeed/global_step3/mp_rank_00_model_states.pt")
    put(tmp_path / "deepspeed/global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt")
    put(tmp_path / "megatron/iter_0000100/mp_rank_00/model_optim_rng.pt")
    put(tmp_path / "lightning/epoch=0-step=50.ckpt")
    put(tmp_path / "both/step9/model.safetensors")
    put(tmp_path / "both/step9/pytorch_model.bin")
    found = {
        name: steps(open_series(tmp_path / name)) for name in ("deepspeed", "megatron", "lightning", "both")
    }
    assert found == {"deepspeed": [3], "megatron": [100], "lightning": [50], "both": [9]}


def test_files_and_globs(tmp_path):
    paths = [put(tmp_path / f"step_{step}.pt") for step in (10, 9)]
    assert steps(open_series(paths)) == [9, 10]
    assert steps(open_series(str(tmp_path / "step_*.pt"))) == [9, 10]
    assert steps(open_series([tmp_path, *paths])) == [9, 10]
    assert steps(open_series(paths[0])) == [10]


def test_a_glob_of_folders(tmp_path):
    for step in (1, 2, 30):
        put(tmp_path / f"step{step}" / "model.safetensors")
    assert steps(open_series(str(tmp_path / "step?"))) == [1, 2]


def test_the_folder_names_the_step_of_a_single_file(tmp_path):
    path = put(tmp_path / "step_70" / "model.safetensors")
    assert steps(open_series(path)) == steps(open_series(path.parent)) == [70]


def test_a_stored_step(tmp_path):
    put(tmp_path / "run" / "last.pt", global_step=42)
    assert steps(open_series(tmp_path / "run")) == [42]
    put(tmp_path / "run" / "model.pt", 2.0, global_step=40)
    assert steps(open_series(tmp_path / "run")) == [40, 42]


def test_the_step_in_the_state_of_the_trainer(tmp_path):
    put(tmp_path / "model.safetensors")
    (tmp_path / "trainer_state.json").write_text('{"global_step": 12}')
    assert steps(open_series(tmp_path)) == [12]


def test_no_step_at_all_says_what_to_do(tmp_path):
    path = put(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="--steps"):
        open_series(path)
    assert steps(open_series(path, steps=[3])) == [3]


def test_given_steps(tmp_path):
    for name in "abc":
        put(tmp_path / f"{name}.safetensors")
    assert steps(open_series(tmp_path, steps=[5, 6, 7])) == [5, 6, 7]
    with pytest.raises(UsageError, match="2 steps were given for 3"):
        open_series(tmp_path, steps=[5, 6])
    with pytest.raises(UsageError, match="-1"):
        open_series(tmp_path, steps=[5, 6, -1])


def test_a_step_that_appears_twice(tmp_path):
    put(tmp_path / "step_5.pt", 1.0)
    put(tmp_path / "step-5.safetensors", 2.0)
    with pytest.raises(CheckpointError, match=re.escape("step-5.safetensors and ")):
        open_series(tmp_path)


def test_stages_are_kept_separate(tmp_path):
    for name in ("stage2-step10-tokens1B", "stage1-step30-tokens3B", "stage1-step4-tokens1B"):
        put(tmp_path / name / "model.safetensors")
    series = open_series(tmp_path)
    found = [(entry.stage, entry.step, entry.tokens) for entry in series.entries]
    assert found == [("stage1", 4, 10**9), ("stage1", 30, 3 * 10**9), ("stage2", 10, 10**9)]


def test_nothing_there(tmp_path):
    with pytest.raises(CheckpointError, match="is empty"):
        open_series(tmp_path)
    with pytest.raises(CheckpointError, match="does not exist"):
        open_series(tmp_path / "none")
    with pytest.raises(CheckpointError, match="matches nothing"):
        open_series(str(tmp_path / "*.pt"))
    with pytest.raises(UsageError, match="No checkpoints"):
        open_series([])
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(CheckpointError, match=r"only notes\.txt.*Known formats: safetensors"):
        open_series(tmp_path)


def test_a_file_that_is_not_a_checkpoint(tmp_path):
    path = tmp_path / "step_1.pt"
    path.write_text("this is not a checkpoint")
    with pytest.raises(UnknownFormat, match="Known formats"):
        open_series(tmp_path).entries[0].open()


def test_content_counts_more_than_the_name(tmp_path):
    path = put(tmp_path / "step_1.safetensors")
    path.rename(tmp_path / "step_1.pt")
    put(tmp_path / "x.pt").rename(tmp_path / "step_2")
    series = open_series(tmp_path)
    assert [entry.open().format for entry in series.entries] == ["safetensors", "pytorch"]


def test_a_single_model_without_a_step_takes_the_default(tmp_path):
    put(tmp_path / "model" / "model.safetensors")
    assert steps(open_series(tmp_path / "model", default_step=0)) == [0]
    assert steps(open_series(tmp_path / "model" / "model.safetensors", default_step=5)) == [5]
    with pytest.raises(CheckpointError, match="--steps"):
        open_series(tmp_path / "model")


def test_a_step_that_is_known_is_not_replaced_by_the_default(tmp_path):
    assert steps(open_series(put(tmp_path / "step_7.safetensors"), default_step=0)) == [7]
    assert steps(open_series(put(tmp_path / "last.pt", step=9), default_step=0)) == [9]


def test_several_models_take_no_default_step(tmp_path):
    for name in ("a", "b"):
        put(tmp_path / f"{name}.safetensors")
    with pytest.raises(CheckpointError, match="--steps"):
        open_series(tmp_path, default_step=0)
