"""DeepSpeed's folders against the same models saved whole."""

import pytest
import torch

from normscope.checkpoints import open_series
from tests.checkpoints.test_rank_layouts import STEPS, check_rows, refusal, rows, whole_rows
from tests.checkpoints.zero_writers import neox, small, write_neox, write_zero2, write_zero3


@pytest.mark.parametrize("write", [write_zero2, write_zero3])
def test_partitions_of_zero_are_the_parameters(tmp_path, write):
    models = {step: small(step) for step in STEPS}
    for step, state in models.items():
        write(tmp_path / "ranks" / f"global_step{step}", state, step)
    (tmp_path / "ranks" / "latest").write_text("global_step300")
    (tmp_path / "ranks" / "zero_to_fp32.py").write_text("")
    found = rows(tmp_path / "ranks", tmp_path / "ranks.db")
    check_rows([row for row in found if row[1] != "table"], whole_rows(tmp_path, models))
    assert not [row for row in found if row[1] == "table"]


@pytest.mark.parametrize("write", [write_zero2, write_zero3])
def test_parameters_under_two_names_count_once(tmp_path, write):
    state = small(1)
    del state["lm_head.weight"]
    write(tmp_path / "global_step1", state, 1, shared={"lm_head.weight": "embed.weight"})
    found = {row[1]: row for row in rows(tmp_path, tmp_path / "run.db")}
    assert found.keys() == state.keys()


def test_the_master_weights_are_preferred_to_their_copies(tmp_path):
    state = small(1)
    folder = write_zero2(tmp_path / "global_step1", state, 1, torch.bfloat16)
    checkpoint = open_series(tmp_path).entries[0].open()
    assert {checkpoint.tensors[name].dtype for name in state} == {"float32"}
    assert "float32 weights are read" in checkpoint.notes[0]
    assert checkpoint.step == 1
    assert checkpoint.buffers == {"table"}
    (folder / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    incomplete = open_series(tmp_path).entries[0].open()
    assert {incomplete.tensors[name].dtype for name in state} == {"bfloat16"}
    assert "of the optimizer's 3 partitions, 2 are there" in incomplete.notes[0]


def test_a_missing_partition_of_stage_3(tmp_path):
    folder = write_zero3(tmp_path / "global_step1", small(1), 1)
    (folder / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    message = refusal(folder)
    assert "of 3 ranks, 'zero_pp_rank_1_mp_rank_00_optim_states.pt' is missing" in message
    assert "zero_to_fp32.py" in message


@pytest.mark.parametrize("write", [write_zero2, write_zero3])
def test_shapes_that_the_partitions_do_not_fill(tmp_path, write):
    state = small(1)
    write(tmp_path / "global_step1", {**state, "embed.weight": torch.randn(30, 5)}, 1)
    write(tmp_path / "other", state, 1)
    for rank in range(3):
        name = f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        (tmp_path / "other" / name).replace(tmp_path / "global_step1" / name)
    assert "Copy all of it" in refusal(tmp_path / "global_step1")


@pytest.mark.parametrize("write", [write_zero2, write_zero3])
def test_only_the_partitions_of_the_optimizer(tmp_path, write):
    folder = write(tmp_path / "global_step1", small(1), 1)
    for path in folder.glob("*model_states.pt"):
        path.unlink()
    message = refusal(folder)
    assert "only the optimizer's partitions" in message
    assert "zero_to_fp32.py" in message


def test_experts_of_deepspeed_are_refused(tmp_path):
    folder = write_zero2(tmp_path / "global_step1", small(1), 1)
    torch.save({}, folder / "layer_0_expert_1_mp_rank_00_model_states.pt")
    assert "DeepSpeed MoE" in refusal(folder)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_layers_of_a_pipeline_are_one_checkpoint(tmp_path, ranks):
    models = {step: neox(step) for step in STEPS}
    for step, state in models.items():
        write_neox(tmp_path / "ranks" / f"global_step{step}", state, step, ranks)
    check_rows(rows(tmp_path / "ranks", tmp_path / "ranks.db"), whole_rows(tmp_path, models))


@pytest.mark.parametrize("gone", ["layer_03-model_01", "layer_04-model_00", "layer_00-model_01"])
def test_a_missing_file_of_a_pipeline(tmp_path, gone):
    folder = write_neox(tmp_path / "global_step1", neox(1), 1, 2)
    (folder / f"{gone}-model_states.pt").unlink()
    assert gone in refusal(folder)


def test_a_missing_layer_of_a_pipeline(tmp_path):
    folder = write_neox(tmp_path / "global_step1", neox(1), 1, 1)
    (folder / "layer_03-model_00-model_states.pt").unlink()
    assert "layer_03" in refusal(folder)


def test_a_missing_last_layer_of_a_pipeline(tmp_path):
    folder = write_neox(tmp_path / "global_step1", neox(1), 1, 1)
    (folder / "layer_04-model_00-model_states.pt").unlink()
    assert "2 layers, but was trained with 3" in refusal(folder)
