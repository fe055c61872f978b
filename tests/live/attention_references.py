"""Attention written out in float64, from the outputs of a model's own query and key projections."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

Numbers = dict[tuple[str, int], tuple[float, float, float]]
"""Module and head → largest logit, mean entropy, mean relative entropy."""


def without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        for name in ("p", "dropout", "attention_dropout", "dropout_prob"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def projections(model: nn.Module, call: Any) -> dict[str, Tensor]:
    """The output of every linear map in a float64 copy of the model, by path."""
    wide, found = copy.deepcopy(model).double().eval(), {}
    for path, module in wide.named_modules():
        if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D":
            module.register_forward_hook(lambda _, args, out, path=path: found.setdefault(path, out.detach()))
    with torch.no_grad():
        call(wide)
    return found


def split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def causal(queries: int, keys: int) -> Tensor:
    return torch.ones(queries, keys, dtype=torch.bool).tril()


def rotated(x: Tensor) -> Tensor:
    """Rotary positions as in Llama: entry i turns with entry i + d/2, at the rate 10000^(−2i/d)."""
    length, size = x.shape[-2:]
    out = x.clone()
    for t in range(length):
        for i in range(size // 2):
            angle = t * 10000.0 ** (-2 * i / size)
            a, b = x[..., t, i], x[..., t, i + size // 2]
            out[..., t, i] = a * math.cos(angle) - b * math.sin(angle)
            out[..., t, i + size // 2] = a * math.sin(angle) + b * math.cos(angle)
    return out


def numbers(name: str, scores: Tensor, visible: Tensor, real: Tensor | None = None) -> Numbers:
    """The numbers of each head, row by row, with nothing but exponentials and logarithms."""
    batch, heads, queries, keys = scores.shape
    seen = visible.expand(batch, heads, queries, keys)
    found: Numbers = {}
    for head in range(heads):
        logits, entropies, relative = [], [], []
        for b in range(batch):
            for q in range(queries):
                row = [scores[b, head, q, k].item() for k in range(keys) if seen[b, head, q, k]]
                if not row or (real is not None and not real[b, q]):
                    continue
                logits.append(max(row))
                total = sum(math.exp(s - max(row)) for s in row)
                weights = [math.exp(s - max(row)) / total for s in row]
                entropies.append(-sum(w * math.log(w) for w in weights if w))
                if len(row) > 1:
                    relative.append(entropies[-1] / math.log(len(row)))
        mean = sum(relative) / len(relative) if relative else math.nan
        found[name, head] = (max(logits), sum(entropies) / len(entropies), mean)
    return found


def of_gpt2(model: nn.Module, batch: dict[str, Tensor]) -> Numbers:
    found, out = projections(model, lambda m: m(**batch)), {}
    real = batch["attention_mask"].bool()
    for layer in range(2):
        q, k, _ = (split(part, 4) for part in found[f"h.{layer}.attn.c_attn"].chunk(3, -1))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        out |= numbers(f"h.{layer}.attn", scores, causal(7, 7) & real[:, None, None], real)
    return out


def of_llama(model: nn.Module, batch: dict[str, Tensor]) -> Numbers:
    found, out = projections(model, lambda m: m(**batch)), {}
    real = batch["attention_mask"].bool()
    for layer in range(2):
        path = f"layers.{layer}.self_attn"
        q = rotated(split(found[f"{path}.q_proj"], 4))
        k = rotated(split(found[f"{path}.k_proj"], 2))
        k = torch.stack([k[:, 0], k[:, 0], k[:, 1], k[:, 1]], 1)  # two heads share each key
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        out |= numbers(path, scores, causal(7, 7) & real[:, None, None], real)
    return out


def of_bert(model: nn.Module, batch: dict[str, Tensor]) -> Numbers:
    found, out = projections(model, lambda m: m(**batch)), {}
    real = batch["attention_mask"].bool()
    for layer in range(2):
        path = f"encoder.layer.{layer}.attention.self"
        q, k = (split(found[f"{path}.{name}"], 4) for name in ("query", "key"))
        out |= numbers(path, q @ k.mT / math.sqrt(q.shape[-1]), real[:, None, None], real)
    return out


def of_t5(model: nn.Module, batch: dict[str, Tensor]) -> Numbers:
    """Relative biases of the first layer in all layers, no scale, cross-attention without bias."""
    found, out = projections(model, lambda m: m(**batch)), {}
    real = batch["attention_mask"].bool()

    def scores_of(path: str) -> Tensor:
        return split(found[f"{path}.q"], 4) @ split(found[f"{path}.k"], 4).mT

    def bias(stack: str, length: int) -> Tensor:
        first = model.get_submodule(f"{stack}.block.0.layer.0.SelfAttention")
        places = torch.arange(length)
        buckets = first._relative_position_bucket(
            places[None] - places[:, None], bidirectional=stack == "encoder", num_buckets=32, max_distance=128
        )
        table = first.relative_attention_bias.weight.detach().double()
        return table[buckets].permute(2, 0, 1)[None]

    for layer in range(2):
        path = f"encoder.block.{layer}.layer.0.SelfAttention"
        out |= numbers(path, scores_of(path) + bias("encoder", 7), real[:, None, None], real)
        path = f"decoder.block.{layer}.layer.0.SelfAttention"
        out |= numbers(path, scores_of(path) + bias("decoder", 5), causal(5, 5))
        path = f"decoder.block.{layer}.layer.1.EncDecAttention"
        out |= numbers(path, scores_of(path), real[:, None, None])
    return out


def of_hand_written(model: nn.Module, tokens: Tensor) -> Numbers:
    found, out = projections(model, lambda m: m(tokens)), {}
    for layer in range(2):
        q, k = (split(found[f"blocks.{layer}.{name}"], 4) for name in ("query", "key"))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        out |= numbers(f"blocks.{layer}", scores, causal(*scores.shape[-2:]))
    return out


def of_lab(model: nn.Module, tokens: Tensor) -> Numbers:
    found, out = projections(model, lambda m: m(tokens)), {}
    for path in [p.removesuffix(".q") for p in found if p.endswith(".q")]:
        q, k = (split(found[f"{path}.{name}"], model.get_submodule(path).heads) for name in ("q", "k"))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        out |= numbers(path, scores, causal(*scores.shape[-2:]))
    return out
