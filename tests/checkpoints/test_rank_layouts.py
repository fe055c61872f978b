"""Checkpoints that ranks wrote in parts against the same models saved whole: every tensor, layer and role."""

import shutil
from pathlib import Path

import pytest
import torch

from normscope.checkpoints import open_file, open_series
from normscope.checkpoints.storage.local import LocalFile
from normscope.errors import CheckpointError, CorruptCheckpoint
from normscope.weights.scan.scan import scan
from tests.checkpoints.rank_writers import llama, megatron, write_megatron, write_meta
from tests.checkpoints.small_checkpoints import raw

STEPS = (100, 200, 300)
_ROWS = """
select w.step, t.name, t.component, t.layer, t.role, t.shape, t.numel, t.tied_to,
       w.sumsq, ifnull(w.dot, 0), ifnull(w.sumsq_delta, 0), ifnull(w.dot_init, 0), w.absmax, w.nonfinite
from weight w join tensor t on t.id = w.tensor order by w.step, t.name
"""


def rows(source, run, **options):
    """Every row that a scan writes, without the numbers that only order them."""
    with scan(source, run, **options) as found:
        return found.query(_ROWS)


def check_rows(found, expected):
    assert [row[:8] for row in found] == [row[:8] for row in expected]
    for row, other in zip(found, expected, strict=True):
        assert row[8:] == pytest.approx(other[8:], rel=1e-7, abs=1e-12), row[:2]


def whole_rows(tmp_path, models):
    for step, state in models.items():
        (tmp_path / "whole").mkdir(exist_ok=True)
        torch.save(state, tmp_path / "whole" / f"step_{step}.pt")
    return rows(tmp_path / "whole", tmp_path / "whole.db")


def check_bytes(folder, state):
    (entry,) = open_series(folder).entries
    checkpoint = entry.open()
    assert checkpoint.tensors.keys() == state.keys()
    for name, value in state.items():
        assert checkpoint.tensors[name].shape == value.shape, name
        data = raw(value)
        assert bytes(checkpoint.read(name, 0, len(data))) == data, name
    return checkpoint


def refusal(folder):
    with pytest.raises(CheckpointError) as refused:
        for entry in open_series(folder, default_step=0).entries:
            entry.open()
    assert len(str(refused.value)) <= 600
    return str(refused.value)


# -- Meta ------------------------------------------------------------------------------------


@pytest.mark.parametrize("words_first", [True, False])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_consolidated_files_are_one_checkpoint(tmp_path, ranks, words_first):
    models = {step: llama(step) for step in STEPS}
    for step, state in models.items():
        write_meta(tmp_path / "ranks" / f"step_{step}", state, ranks, words_first)
    check_rows(rows(tmp_path / "ranks", tmp_path / "ranks.db"), whole_rows(tmp_path, models))


def test_consolidated_files_without_a_step(tmp_path):
    state = llama(7)
    folder = write_meta(tmp_path / "original", state, 2)
    (entry,) = open_series(folder, default_step=0).entries
    checkpoint = entry.open()
    assert checkpoint.tensors.keys() == state.keys()
    assert not checkpoint.notes


def test_a_missing_rank_of_meta(tmp_path):
    folder = write_meta(tmp_path / "step_1", llama(1), 4)
    (folder / "consolidated.02.pth").unlink()
    message = refusal(folder)
    assert "of 4 ranks, 'consolidated.02.pth' is missing" in message
    assert "convert_llama_weights_to_hf.py" in message


@pytest.mark.parametrize("kept", [1, 2])
def test_missing_last_ranks_of_meta(tmp_path, kept):
    """No name says how many there are, but the queries of a layer are as many as the model is wide."""
    folder = write_meta(tmp_path / "step_1", llama(1), 4)
    for rank in range(kept, 4):
        (folder / f"consolidated.{rank:02d}.pth").unlink()
    assert "of 4 ranks" in refusal(folder)


def test_a_lone_later_rank_is_no_model(tmp_path):
    folder = write_meta(tmp_path / "step_1", llama(1), 2)
    (folder / "consolidated.00.pth").unlink()
    assert "consolidated.00.pth" in refusal(folder)


def test_a_rank_that_is_a_copy_of_another(tmp_path):
    folder = write_meta(tmp_path / "step_1", llama(1), 2)
    (folder / "consolidated.01.pth").write_bytes((folder / "consolidated.00.pth").read_bytes())
    assert "same bytes as consolidated.00.pth" in refusal(folder)


def test_ranks_of_two_models(tmp_path):
    folder = write_meta(tmp_path / "step_1", llama(1), 2)
    other = write_meta(tmp_path / "other", llama(2), 2)
    (other / "consolidated.01.pth").replace(folder / "consolidated.01.pth")
    assert "different steps or trainings" in refusal(folder)


def test_names_that_no_rule_knows(tmp_path):
    """Parts and copies are told apart by their bytes, and the answer says so; constants stay in doubt."""
    folder = write_meta(tmp_path / "step_1", llama(1), 2)
    same = torch.randn(5)
    for rank in range(2):
        path = folder / f"consolidated.{rank:02d}.pth"
        extra = {"odd.same": same, "odd.zero": torch.zeros(3), "odd.part": torch.randn(2, 3)}
        torch.save({**torch.load(path), **extra}, path)
    checkpoint = open_series(folder).entries[0].open()
    shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items() if name.startswith("odd")}
    assert shapes == {"odd.same": (5,), "odd.zero": (3,), "odd.part": (2, 2, 3)}
    assert any("equal on all ranks" in note and "1 are constant" in note for note in checkpoint.notes)
    assert any("counted as parts" in note and "odd.part" in note for note in checkpoint.notes)


# -- Megatron -----------------------------------------------------------------------------------


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_megatron_ranks_are_one_checkpoint(tmp_path, tensor, stages, gated):
    models = {step: megatron(step, gated) for step in STEPS}
    for step, state in models.items():
        write_megatron(tmp_path / "ranks" / f"iter_{step:07d}", state, step, tensor, stages, gated=gated)
    (tmp_path / "ranks" / "latest_checkpointed_iteration.txt").write_text("300")
    check_rows(rows(tmp_path / "ranks", tmp_path / "ranks.db"), whole_rows(tmp_path, models))


def test_virtual_stages_are_in_the_order_of_the_network(tmp_path):
    state = megatron(5)
    check_bytes(write_megatron(tmp_path / "iter_0000005", state, 5, 2, 2, chunks=2), state)


@pytest.mark.parametrize("tensor", [1, 2])
def test_the_copy_of_a_tied_embedding_counts_once(tmp_path, tensor):
    state = megatron(5, tied=True)
    checkpoint = check_bytes(write_megatron(tmp_path / "iter_0000005", state, 5, tensor, 2), state)
    assert "copy of embedding.word_embeddings.weight" in checkpoint.skipped["output_layer.weight"]


def test_zero_biases_are_parts_although_their_bytes_are_equal(tmp_path):
    state = megatron(5, zero_biases=True)
    checkpoint = check_bytes(write_megatron(tmp_path / "iter_0000005", state, 5, 4), state)
    assert not checkpoint.notes


def test_a_series_whose_number_of_ranks_changes(tmp_path):
    models = {step: megatron(step) for step in STEPS}
    for (step, state), sizes in zip(models.items(), [(1, 1), (4, 1), (2, 2)], strict=True):
        write_megatron(tmp_path / "ranks" / f"iter_{step:07d}", state, step, *sizes)
    check_rows(rows(tmp_path / "ranks", tmp_path / "ranks.db"), whole_rows(tmp_path, models))


def test_old_files_that_keep_queries_keys_and_values_apart(tmp_path):
    """checkpoint_version 0: all queries of a rank, then its keys, then its values."""
    state = megatron(5)
    folder = write_megatron(tmp_path / "iter_0000005", state, 5, 2)
    for rank in range(2):
        path = folder / f"mp_rank_{rank:02d}" / "model_optim_rng.pt"
        saved = torch.load(path, weights_only=False)
        saved["checkpoint_version"] = 0
        for name in [name for name in saved["model"] if "linear_qkv" in name]:
            saved["model"][name] = torch.cat([part.chunk(2)[rank] for part in state[name].chunk(3)])
        torch.save(saved, path)
    check_bytes(folder, state)


def test_a_missing_rank_of_megatron(tmp_path):
    folder = write_megatron(tmp_path / "iter_0000005", megatron(5), 5, 4)
    (folder / "mp_rank_03" / "model_optim_rng.pt").unlink()
    (folder / "mp_rank_03").rmdir()
    message = refusal(folder)
    assert "of 4 ranks, 'mp_rank_03' is missing" in message
    assert "Megatron" in message
    assert "tools/checkpoint/convert.py" in message


def test_a_rank_without_its_model(tmp_path):
    folder = write_megatron(tmp_path / "iter_0000005", megatron(5), 5, 2)
    (folder / "mp_rank_01" / "model_optim_rng.pt").rename(folder / "mp_rank_01" / "distrib_optim.pt")
    assert "only distrib_optim.pt" in refusal(folder)


def test_ranks_of_two_iterations(tmp_path):
    folder = write_megatron(tmp_path / "iter_0000005", megatron(5), 5, 2)
    other = write_megatron(tmp_path / "other", megatron(6), 6, 2)
    (other / "mp_rank_01" / "model_optim_rng.pt").replace(folder / "mp_rank_01" / "model_optim_rng.pt")
    assert "different steps: mp_rank_00 of step 5, mp_rank_01 of step 6" in refusal(folder)


def test_a_copied_rank_of_megatron(tmp_path):
    folder = write_megatron(tmp_path / "iter_0000005", megatron(5), 5, 2)
    data = (folder / "mp_rank_00" / "model_optim_rng.pt").read_bytes()
    (folder / "mp_rank_01" / "model_optim_rng.pt").write_bytes(data)
    assert "mp_rank_01 has the same bytes as mp_rank_00" in refusal(folder)


def test_a_copy_that_has_drifted_is_said(tmp_path):
    """A norm that one rank trained differently: the model is one, and the answer says what is wrong."""
    folder = write_megatron(tmp_path / "iter_0000005", megatron(5), 5, 2)
    path = folder / "mp_rank_01" / "model_optim_rng.pt"
    saved = torch.load(path, weights_only=False)
    saved["model"]["decoder.layers.0.input_layernorm.weight"] += 1
    torch.save(saved, path)
    (note,) = open_series(folder).entries[0].open().notes
    assert "1 tensors" in note
    assert "decoder.layers.0.input_layernorm.weight" in note


def test_a_release_has_no_iteration(tmp_path):
    state = megatron(5)
    write_megatron(tmp_path / "release", state, 0, 2)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("release")
    check_bytes(tmp_path, state)


@pytest.mark.parametrize("stages", [1, 2])
def test_experts_are_numbered_over_the_ranks(tmp_path, stages):
    state = megatron(5, gated=False)
    for i in range(4):
        for e in range(4):
            stem = f"decoder.layers.{i}.mlp.experts.local_experts.{e}"
            state |= {
                f"{stem}.linear_fc1.weight": torch.randn(6, 8),
                f"{stem}.linear_fc2.weight": torch.randn(8, 6),
            }
        state[f"decoder.layers.{i}.mlp.router.weight"] = torch.randn(4, 8)
    for expert in range(2):
        own = {
            k: v
            for k, v in state.items()
            if not (n := k.partition("local_experts.")[2]) or int(n[0]) // 2 == expert
        }
        own = {
            k.replace("experts.2.", "experts.0.").replace("experts.3.", "experts.1."): v
            for k, v in own.items()
        }
        write_megatron(tmp_path / f"e{expert}", own, 5, 2, stages, gated=False, expert_model_parallel_size=2)
        (tmp_path / "iter_0000005").mkdir(exist_ok=True)
        for place in list((tmp_path / f"e{expert}").iterdir()):
            place.rename(tmp_path / "iter_0000005" / f"{place.name}_{expert:03d}")
    check_bytes(tmp_path / "iter_0000005", state)


def test_experts_in_one_tensor_are_refused(tmp_path):
    for expert in range(2):
        state = {**megatron(5), "decoder.layers.0.mlp.experts.weight1": torch.randn(8, 12)}
        folder = write_megatron(tmp_path / f"e{expert}", state, 5, 1, expert_model_parallel_size=2)
        (tmp_path / "iter_0000005").mkdir(exist_ok=True)
        (folder / "mp_rank_00").rename(tmp_path / "iter_0000005" / f"mp_rank_00_{expert:03d}")
    assert "several experts of one rank are in one tensor" in refusal(tmp_path / "iter_0000005")


def test_ranks_behind_fsspec(tmp_path):
    """A folder that is not on a disk gives the same rows."""
    fsspec = pytest.importorskip("fsspec")
    models = {step: megatron(step) for step in STEPS}
    memory = fsspec.filesystem("memory")
    for step, state in models.items():
        write_megatron(tmp_path / "ranks" / f"iter_{step:07d}", state, step, 2, 2)
    for path in (tmp_path / "ranks").rglob("*.pt"):
        memory.pipe(f"/ranks/{path.relative_to(tmp_path / 'ranks')}", path.read_bytes())
    found = rows("memory://ranks", tmp_path / "memory.db")
    memory.rm("/ranks", recursive=True)
    check_rows(found, whole_rows(tmp_path, models))


def test_a_scan_of_ranks_in_processes_and_again(tmp_path):
    """Several workers, and a second scan that finds everything measured, give the same rows."""
    models = {step: megatron(step) for step in STEPS}
    for step in STEPS[:2]:
        write_megatron(tmp_path / "ranks" / f"iter_{step:07d}", models[step], step, 2)
    rows(tmp_path / "ranks", tmp_path / "ranks.db", workers=2)
    write_megatron(tmp_path / "ranks" / f"iter_{STEPS[2]:07d}", models[STEPS[2]], STEPS[2], 4)
    found = rows(tmp_path / "ranks", tmp_path / "ranks.db", workers=2)
    check_rows(found, whole_rows(tmp_path, models))


# -- written by Megatron-Core itself (make_rank_fixtures.py) -----------------------------------

FIXTURES = Path(__file__).parent / "fixtures" / "megatron"
_FUSED = {
    "input_layernorm.": "self_attention.linear_qkv.layer_norm_",
    "pre_mlp_layernorm.": "mlp.linear_fc1.layer_norm_",
}


def test_both_formats_of_megatron_hold_the_same_model():
    """`torch_dist` names the norms as if they were fused with the layer after them; the rest is equal."""
    ranks, joined = (open_series(FIXTURES / kind).entries[0] for kind in ("torch", "torch_dist"))
    assert ranks.step == joined.step == 1
    one, other = ranks.open(), joined.open()
    assert one.step == other.step == 1
    assert not one.notes
    assert not other.notes
    names = {name: name for name in one.tensors}
    for old, new in _FUSED.items():
        names = {name: whole.replace(old, new) for name, whole in names.items()}
    assert set(names.values()) == set(other.tensors)
    for name, whole in names.items():
        tensor = one.tensors[name]
        assert tensor.shape == other.tensors[whole].shape
        assert bytes(one.read(name, 0, tensor.nbytes)) == bytes(other.read(whole, 0, tensor.nbytes)), name


def test_the_step_before_the_first_is_known(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(next((FIXTURES / "torch_dist").iterdir()), folder)
    torch.save({"iteration": 0}, folder / "common.pt")
    (entry,) = open_series(folder).entries
    assert entry.step == entry.open().step == 0


def test_a_file_that_takes_too_long_costs_the_next_one_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("NORMSCOPE_LIMITS", "work=2000")
    torch.save({"model": {"w": torch.ones(2)}, "log": [[i] for i in range(3000)]}, tmp_path / "long.pt")
    with pytest.raises(CorruptCheckpoint, match="too long"):
        open_file(LocalFile(tmp_path / "long.pt"))
    (entry,) = open_series(FIXTURES / "torch_dist").entries
    assert entry.open().step == 1


def test_layers_in_one_tensor_are_told_apart(tmp_path):
    found = rows(FIXTURES / "torch_dist", tmp_path / "run.db")
    layers = {row[1]: (row[3], row[4]) for row in found}
    assert layers["decoder.layers.1.mlp.linear_fc2.weight"] == (1, "mlp out")
    assert layers["decoder.layers.0.self_attention.linear_qkv.weight"] == (0, "qkv")
    assert layers["output_layer.weight"] == (None, "head")
