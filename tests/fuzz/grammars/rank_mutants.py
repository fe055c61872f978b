"""Layouts that ranks write: files that are missing, copied, damaged, shapes and counts that do not fit."""

import argparse
import io
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch

from ..checkpoints_read import read_folder
from ..mutant import Grammar, Mutant, Values
from ..mutations import damaged

State = dict[str, torch.Tensor]
Files = dict[str, bytes]
FIXTURES = Path(__file__).parents[2] / "checkpoints" / "fixtures" / "fsdp"


def _saved(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _model(rng: Random, names: dict[str, tuple[int, ...]]) -> State:
    torch.manual_seed(rng.randrange(1 << 30))
    return {name: torch.randn(shape) for name, shape in names.items()}


def _meta(rng: Random, odd: float) -> tuple[Files, State]:
    width = 2 * rng.randrange(1, 4)
    state = _model(rng, {
        "tok_embeddings.weight": (6, width), "norm.weight": (width,), "output.weight": (6, width),
        "layers.0.attention.wq.weight": (width, width), "layers.0.attention.wo.weight": (width, width),
    })  # fmt: skip
    axes = {"wo": 1, "norm": None}
    files = {}
    for rank in range(2):
        held = {}
        for name, value in state.items():
            axis = axes.get(name.split(".")[-2], 0)
            held[name] = value if axis is None else value.chunk(2, axis)[rank].clone()
        files[f"step_1/consolidated.{rank:02d}.pth"] = _saved(_odd(rng, held, odd / 4))
    return files, state


def _megatron(rng: Random, odd: float) -> tuple[Files, State]:
    width, inner = 2 * rng.randrange(1, 4), 2 * rng.randrange(1, 4)
    state = _model(rng, {
        "embedding.word_embeddings.weight": (6, width), "decoder.layers.0.input_layernorm.weight": (width,),
        "decoder.layers.0.mlp.linear_fc1.weight": (inner, width),
        "decoder.layers.0.mlp.linear_fc1.bias": (inner,),
        "decoder.layers.0.mlp.linear_fc2.weight": (width, inner),
        "decoder.layers.0.mlp.linear_fc2.bias": (width,),
    })  # fmt: skip
    size = rng.choice((0, 3, -1, 1 << 70, "2", None)) if rng.random() < odd else 2
    version = rng.choice((0, 1.0, "x", None, 1e300)) if rng.random() < odd else 3.0
    files = {}
    for rank in range(2):
        held = {}
        for name, value in state.items():
            axis = None if "norm" in name or "fc2.bias" in name else int("fc2" in name)
            held[name] = value if axis is None else value.chunk(2, axis)[rank].clone()
        arguments = argparse.Namespace(tensor_model_parallel_size=size)
        saved = {
            "args": arguments,
            "checkpoint_version": version,
            "iteration": 1,
            "model": _odd(rng, held, odd / 4),
        }
        files[f"iter_0000001/mp_rank_{rank:02d}/model_optim_rng.pt"] = _saved(saved)
    return files, state


def _zero(rng: Random, odd: float) -> tuple[Files, State]:
    state = _model(
        rng, {f"layers.{i}.mlp.up_proj.weight": (rng.randrange(1, 5), rng.randrange(1, 4)) for i in range(3)}
    )
    stage, ranks = rng.choice((2, 3)), 2
    shapes = [{name: torch.Size(_odd_shape(rng, value.shape, odd / 4)) for name, value in state.items()}]
    module = {k: v if stage == 2 else torch.empty(0) for k, v in state.items()}
    beside = {
        "buffer_names": [],
        "param_shapes": shapes,
        "shared_params": {},
        "global_steps": 1,
        "dp_world_size": ranks,
    }
    count = rng.choice((0, 1, 3, "2", [2, 3], None)) if rng.random() < odd else ranks
    files: Files = {}
    for rank in range(ranks):
        if stage == 2:
            files["global_step1/mp_rank_00_model_states.pt"] = _saved({"module": module, **beside})
            flat = torch.cat([value.flatten() for value in state.values()])
            groups = [torch.nn.functional.pad(flat, (0, -len(flat) % 4)).chunk(ranks)[rank].clone()]
            optimizer = {"zero_stage": 2, "partition_count": count, "single_partition_of_fp32_groups": groups}
        else:
            files[f"global_step1/zero_pp_rank_{rank}_mp_rank_00_model_states.pt"] = _saved(
                {"module": module, **beside}
            )
            flats = [v.flatten() for v in state.values()]
            parts = [torch.nn.functional.pad(f, (0, len(f) % 2)).chunk(ranks)[rank] for f in flats]
            optimizer = {"zero_stage": 3, "partition_count": count, "fp32_flat_groups": [torch.cat(parts)]}
        name = f"global_step1/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        files[name] = _saved({"optimizer_state_dict": optimizer})
    return files, state


def _neox(rng: Random, odd: float) -> tuple[Files, State]:
    width = 2 * rng.randrange(1, 4)
    inner = {"input_layernorm.weight": (width,), "attention.dense.weight": (width, width)}
    state = _model(rng, {f"layers.{i}.{name}": shape for i in range(2) for name, shape in inner.items()})
    layers = rng.choice((1, 3, "2", None, -1)) if rng.random() < odd else 2
    files: Files = {}
    for rank in range(2):
        for layer in range(2):
            names = {name: f"layers.{layer}.{name}" for name in inner}
            held = {
                n: state[w] if "norm" in n else state[w].chunk(2, 1)[rank].clone() for n, w in names.items()
            }
            saved = _saved(_odd(rng, held, odd / 4))
            files[f"global_step1/layer_{layer + 2:02d}-model_{rank:02d}-model_states.pt"] = saved
        beside = {"module": None, "iteration": 1, "args": {"num_layers": layers, "model_parallel_size": 2}}
        files[f"global_step1/mp_rank_{rank:02d}_model_states.pt"] = _saved(beside)
    return files, state


def _fsdp(rng: Random, odd: float) -> tuple[Files, State]:
    folder = FIXTURES / rng.choice(("fsdp1", "fsdp2", "hsdp"))
    files = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.pt"))}
    return files, torch.load(FIXTURES / "whole.pt")


def _odd(rng: Random, held: State, odd: float) -> State:
    """A rank's tensors, some of them of another shape, dtype or name."""
    changes: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda value: value[:-1].clone(), lambda value: value.half(), lambda value: value[None],
        lambda value: torch.zeros_like(value), lambda value: value.flatten(), lambda value: value[:0].clone(),
    ]  # fmt: skip
    return {
        (f"{name}x" if rng.random() < odd / 3 else name): rng.choice(changes)(value)
        if rng.random() < odd
        else value
        for name, value in held.items()
    }


def _odd_shape(rng: Random, shape: torch.Size, odd: float) -> tuple[int, ...]:
    return tuple(rng.choice((0, 1, 1 << 40, size + 1)) if rng.random() < odd else size for size in shape)


LAYOUTS = (_meta, _megatron, _zero, _neox, _fsdp)


def _ranks(rng: Random) -> Mutant:
    odd = rng.choice((0.0, 0.0, 0.1, 0.5))
    files, state = rng.choice(LAYOUTS)(rng, odd)
    truth = {name: Values(tuple(v.shape), v.numpy().tobytes(), "float32") for name, v in state.items()}
    deed = rng.choice(("none", "drop", "copy", "damage", "damage"))
    names = sorted(files)
    one, other = rng.choice(names), rng.choice(names)
    if deed == "drop":
        del files[one]
    elif deed == "copy":
        files[one] = files[other]
    elif deed == "damage":
        files[one] = damaged(rng, files[one])
    sound = odd == 0 and deed == "none"
    return Mutant(files, truth if sound or (deed == "drop" and odd == 0) else None, sound)


RANKS = Grammar("ranks", _ranks, read_folder)
