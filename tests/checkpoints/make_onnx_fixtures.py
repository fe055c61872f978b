"""Writes the ONNX fixtures with torch.onnx and onnx; run by hand in an environment that has them.

    python tests/checkpoints/make_onnx_fixtures.py

Beside the exports stands the state dict of the same model, as .npz.
"""

import shutil
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn

HERE = Path(__file__).parent / "fixtures" / "onnx"


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.v_proj, self.o_proj = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, hidden):
        scores = self.q_proj(hidden) @ self.k_proj(hidden).transpose(1, 2) / hidden.shape[-1] ** 0.5
        mask = torch.full(scores.shape[-2:], float("-inf")).triu(1)
        return self.o_proj((scores + mask).softmax(-1) @ self.v_proj(hidden))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(width, 24), nn.Linear(24, width)

    def forward(self, hidden):
        return self.down_proj(nn.functional.gelu(self.up_proj(hidden)))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.self_attn, self.mlp = Attention(width), MLP(width)
        self.input_layernorm, self.post_attention_layernorm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, hidden):
        hidden = hidden + self.self_attn(self.input_layernorm(hidden))
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(30, 8)
        self.layers = nn.ModuleList(Layer(8) for _ in range(2))
        self.norm, self.lm_head = nn.LayerNorm(8), nn.Linear(8, 30, bias=False)
        self.register_buffer("inv_freq", torch.linspace(1, 2, 8))

    def forward(self, tokens):
        hidden = self.embed_tokens(tokens) * self.inv_freq
        for layer in self.layers:
            hidden = layer(hidden)
        return self.lm_head(self.norm(hidden))


def drop_traces(path):
    """Take out where in whose folders each operation was traced."""
    model = onnx.load(path)
    for graph in (model.graph, *model.functions):
        for node in graph.node:
            kept = [each for each in node.metadata_props if "stack_trace" not in each.key]
            del node.metadata_props[:]
            node.metadata_props.extend(kept)
    onnx.save(model, path)


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir(parents=True)
    torch.manual_seed(0)
    model = Model().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    np.savez(HERE / "whole.npz", **{n: p.detach().numpy() for n, p in model.named_parameters()})
    tokens = torch.arange(5)[None]
    warnings.simplefilter("ignore")
    torch.onnx.export(model, (tokens,), str(HERE / "scripted.onnx"), dynamo=False)
    torch.onnx.export(model, (tokens,), str(HERE / "dynamo.onnx"), dynamo=True, external_data=False)
    (HERE / "external").mkdir()
    fresh = Model().eval()
    fresh.lm_head.weight = fresh.embed_tokens.weight
    np.savez(HERE / "fresh.npz", **{n: p.detach().numpy() for n, p in fresh.named_parameters()})
    torch.onnx.export(fresh, (tokens,), str(HERE / "fresh_scripted.onnx"), dynamo=False)
    torch.onnx.export(fresh, (tokens,), str(HERE / "fresh_dynamo.onnx"), dynamo=True, external_data=False)
    drop_traces(HERE / "dynamo.onnx")
    drop_traces(HERE / "fresh_dynamo.onnx")
    loaded = onnx.load(HERE / "scripted.onnx")
    onnx.save(
        loaded, HERE / "external" / "model.onnx", save_as_external_data=True, location="model.onnx_data",
        size_threshold=0, all_tensors_to_one_file=True,
    )  # fmt: skip
    (HERE / "VERSION").write_text(f"torch {torch.__version__}, onnx {onnx.__version__}\n")


if __name__ == "__main__":
    main()
