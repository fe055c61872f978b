"""Checkpoints in the layouts of DeepSpeed, as its source says.

deepspeed/runtime/engine.py (_save_checkpoint), runtime/zero/stage_1_and_2.py and stage3.py (state_dict), and
gpt-neox's megatron/checkpointing.py.
"""

import torch

from tests.checkpoints.rank_writers import megatron_part

DP = 3


def small(step):
    """A model of odd sizes, so that every partition is padded."""
    torch.manual_seed(step)
    return {
        "embed.weight": torch.randn(11, 5),
        **{f"layers.{i}.mlp.{n}_proj.weight": torch.randn(5, 5) for i in range(2) for n in ("up", "down")},
        "norm.weight": torch.randn(5),
        "lm_head.weight": torch.randn(11, 5),
    }


def description(state, groups, step, shared=None):
    """What a model_states file holds besides the module."""
    shapes = [{name: state[name].shape for name in group} for group in groups]
    return {
        "buffer_names": ["table"], "param_shapes": shapes, "shared_params": shared or {},
        "global_steps": step,
        "frozen_param_shapes": None, "frozen_param_fragments": None, "dp_world_size": DP, "mp_world_size": 1,
        "ds_version": "0.19.8", "optimizer": None,
    }  # fmt: skip


def write_zero2(folder, state, step, module_dtype=torch.float32, shared=None):
    """Stages 1 and 2: the module in one file; each group flat, padded at its end, in equal parts."""
    folder.mkdir(parents=True)
    groups = [[n for n in state if state[n].ndim > 1], [n for n in state if state[n].ndim == 1]]
    module = {name: value.to(module_dtype) for name, value in state.items()} | {"table": torch.ones(3)}
    module |= {name: module[other] for name, other in (shared or {}).items()}
    torch.save(
        {"module": module, **description(state, groups, step, shared)}, folder / "mp_rank_00_model_states.pt"
    )
    parts = []
    for group in groups:
        flat = torch.cat([state[name].flatten() for name in group])
        flat = torch.nn.functional.pad(flat, (0, -len(flat) % (2 * DP)), value=7.0)
        parts.append(flat.chunk(DP))
    for rank in range(DP):
        saved = {
            "zero_stage": 2, "partition_count": [DP, DP],
            "single_partition_of_fp32_groups": [part[rank].clone() for part in parts],
            "base_optimizer_state": {"state": {0: {"exp_avg": torch.ones(4)}}, "param_groups": []},
        }  # fmt: skip
        torch.save(
            {"optimizer_state_dict": saved}, folder / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        )
    return folder


def write_zero3(folder, state, step, shared=None):
    """Stage 3: every parameter in equal parts, padded; two sub-groups; the module holds empty tensors."""
    folder.mkdir(parents=True)
    names = list(state)
    module = {name: torch.empty(0) for name in (*names, *(shared or {}))} | {"table": torch.ones(3)}
    half = len(names) // 2
    for rank in range(DP):
        torch.save(
            {"module": module, **description(state, [names], step, shared)},
            folder / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt",
        )
        parts = []
        for name in names:
            flat = state[name].flatten()
            parts.append(torch.nn.functional.pad(flat, (0, -len(flat) % DP), value=7.0).chunk(DP)[rank])
        flat_groups = [torch.cat(parts[:half]), torch.cat(parts[half:])]
        saved = {"zero_stage": 3, "partition_count": DP, "fp32_flat_groups": flat_groups}
        torch.save(
            {"optimizer_state_dict": saved}, folder / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        )
    return folder


def neox(step, layers=3):
    """A small model with the names inside GPT-NeoX's layers."""
    torch.manual_seed(step)
    state = {"word_embeddings.weight": torch.randn(24, 8)}
    for i in range(layers):
        state |= {
            f"layers.{i}.input_layernorm.weight": torch.randn(8),
            f"layers.{i}.attention.query_key_value.weight": torch.randn(24, 8),
            f"layers.{i}.attention.dense.weight": torch.randn(8, 8),
            f"layers.{i}.attention.dense.bias": torch.randn(8),
            f"layers.{i}.mlp.dense_h_to_4h.weight": torch.randn(32, 8),
            f"layers.{i}.mlp.dense_4h_to_h.weight": torch.randn(8, 32),
        }
    return state | {"norm.weight": torch.randn(8), "final_linear.weight": torch.randn(24, 8)}


_NEW_NAMES = {
    "query_key_value": "linear_qkv", "attention.dense": "linear_proj", "dense_h_to_4h": "linear_fc1",
    "dense_4h_to_h": "linear_fc2",
}  # fmt: skip


def write_neox(folder, state, step, ranks, layers=3):
    """layer_00 is the embedding, layers from 2 on the model's, then one without parameters, norm and head."""
    folder.mkdir(parents=True)
    places = {"word_embeddings": 0, "norm": layers + 3, "final_linear": layers + 4}
    for rank in range(ranks):
        files = {}
        for name, value in state.items():
            head, _, rest = name.partition(".")
            number, inner = (
                (int(rest.split(".")[0]) + 2, rest.split(".", 1)[1])
                if head == "layers"
                else (places[head], name)
            )
            like = name
            for old, new in _NEW_NAMES.items():
                like = like.replace(old, new)
            files.setdefault(number, {})[inner] = megatron_part(like, value, rank, ranks, gated=False)
        for number, held in files.items():
            torch.save(held, folder / f"layer_{number:02d}-model_{rank:02d}-model_states.pt")
        arguments = {"num_layers": layers, "model_parallel_size": ranks}
        beside = {"module": None, "iteration": step, "args": arguments, "mp_world_size": ranks}
        torch.save(beside, folder / f"mp_rank_{rank:02d}_model_states.pt")
    return folder
