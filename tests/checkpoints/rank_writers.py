"""Small models saved whole, and the same models as the ranks of Meta's and Megatron's trainings save them.

How tensors are divided: fairscale's ColumnParallelLinear, RowParallelLinear and ParallelEmbedding (Meta); the
layers of the same names in megatron.core, and get_checkpoint_name in Megatron-LM's checkpointing.py.
"""

import argparse
import re

import torch

WIDTH, INNER, WORDS, LAYERS, HEADS = 8, 16, 24, 4, 4


def llama(step, layers=LAYERS, words_first=True):
    """A small model with the names of Meta's llama; `words_first` is how its embedding is divided."""
    torch.manual_seed(step)
    new = torch.randn
    state = {
        "tok_embeddings.weight": new(WORDS, WIDTH),
        "norm.weight": new(WIDTH),
        "output.weight": new(WORDS, WIDTH),
    }
    for i in range(layers):
        state |= {f"layers.{i}.attention.w{c}.weight": new(WIDTH, WIDTH) for c in "qkvo"}
        state |= {
            f"layers.{i}.feed_forward.w1.weight": new(INNER, WIDTH),
            f"layers.{i}.feed_forward.w2.weight": new(WIDTH, INNER),
            f"layers.{i}.feed_forward.w3.weight": new(INNER, WIDTH),
            f"layers.{i}.attention_norm.weight": new(WIDTH),
            f"layers.{i}.ffn_norm.weight": new(WIDTH),
        }
    return state


def write_meta(folder, state, ranks, words_first=True):
    """consolidated.00.pth and so on."""
    folder.mkdir(parents=True)
    axes = {"tok_embeddings": 0 if words_first else 1, "output": 0, "wo": 1, "w2": 1}
    for rank in range(ranks):
        own = {}
        for name, value in state.items():
            module = name.split(".")[-2]
            axis = None if "norm" in module else axes.get(module, 0)
            own[name] = value if axis is None else value.chunk(ranks, axis)[rank].clone()
        torch.save(own, folder / f"consolidated.{rank:02d}.pth")
    return folder


def megatron(step, gated=True, tied=False, zero_biases=False):
    """A small model with the names of Megatron-Core: column-parallel, then row-parallel layers."""
    torch.manual_seed(step)
    new = torch.randn
    inner = INNER * (2 if gated else 1)
    state = {
        "embedding.word_embeddings.weight": new(WORDS, WIDTH),
        "embedding.position_embeddings.weight": new(12, WIDTH),
    }
    for i in range(LAYERS):
        layer = f"decoder.layers.{i}"
        state |= {
            f"{layer}.input_layernorm.weight": new(WIDTH),
            f"{layer}.self_attention.linear_qkv.weight": new(3 * WIDTH, WIDTH),
            f"{layer}.self_attention.linear_qkv.bias": new(3 * WIDTH),
            f"{layer}.self_attention.linear_proj.weight": new(WIDTH, WIDTH),
            f"{layer}.self_attention.linear_proj.bias": new(WIDTH),
            f"{layer}.pre_mlp_layernorm.weight": new(WIDTH),
            f"{layer}.mlp.linear_fc1.weight": new(inner, WIDTH),
            f"{layer}.mlp.linear_fc1.bias": new(inner),
            f"{layer}.mlp.linear_fc2.weight": new(WIDTH, INNER),
            f"{layer}.mlp.linear_fc2.bias": new(WIDTH),
        }
    state["decoder.final_layernorm.weight"] = new(WIDTH)
    if not tied:
        state["output_layer.weight"] = new(WORDS, WIDTH)
    return {k: torch.zeros_like(v) if zero_biases and k.endswith("bias") else v for k, v in state.items()}


def megatron_part(name, value, rank, ranks, gated=True):
    """What one tensor-parallel rank holds of a tensor."""
    if re.search(r"norm|position|linear_proj\.bias|fc2\.bias|router", name):
        return value
    if re.search(r"linear_proj\.weight|fc2\.weight", name):
        return value.chunk(ranks, 1)[rank].clone()
    if gated and "fc1" in name:
        return torch.cat([half.chunk(ranks)[rank] for half in value.chunk(2)])
    return value.chunk(ranks)[rank].clone()


def stage_of(state, stage, stages, chunk=0, chunks=1):
    """The tensors of one chunk of a stage, with layers counted from 0; the last one copies a tied head."""
    per = LAYERS // stages // chunks
    first = chunk * LAYERS // chunks + stage * per
    is_first, is_last = (stage, chunk) == (0, 0), (stage, chunk) == (stages - 1, chunks - 1)
    own = {}
    for name, value in state.items():
        found = re.fullmatch(r"(decoder\.layers\.)(\d+)(\..*)", name)
        if found and first <= int(found[2]) < first + per:
            own[f"{found[1]}{int(found[2]) - first}{found[3]}"] = value
        elif not found and (is_first if name.startswith("embedding") else is_last):
            own[name] = value
    if is_last and not is_first and "output_layer.weight" not in state:
        own["output_layer.weight"] = state["embedding.word_embeddings.weight"]
    return own


def write_megatron(folder, state, step, tensor=1, stages=1, chunks=1, gated=True, **more):
    """iter_0000100/mp_rank_00_000/model_optim_rng.pt and so on; `more` are arguments of the training."""
    sizes = {"tensor_model_parallel_size": tensor, "pipeline_model_parallel_size": stages}
    for t in range(tensor):
        for s in range(stages):
            models = [
                {
                    k: megatron_part(k, v, t, tensor, gated)
                    for k, v in stage_of(state, s, stages, c, chunks).items()
                }
                for c in range(chunks)
            ]
            named = (
                {"model": models[0]} if chunks == 1 else {f"model{c}": each for c, each in enumerate(models)}
            )
            place = folder / (f"mp_rank_{t:02d}" if stages == 1 else f"mp_rank_{t:02d}_{s:03d}")
            place.mkdir(parents=True)
            saved = {
                "args": argparse.Namespace(**sizes, **more),
                "checkpoint_version": 3.0,
                "iteration": step,
                **named,
            }
            optimizer = {"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": [{"params": [0]}]}
            torch.save({**saved, "optimizer": {"optimizer": optimizer}}, place / "model_optim_rng.pt")
    return folder
