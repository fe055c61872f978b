"""Pico models of every family, built from configs, offline."""

from __future__ import annotations

import math

import torch
from torch import nn

FAMILIES = ("bert", "roberta", "gpt2", "gpt_neox", "llama", "t5", "xlnet")


def hugging_face(family: str, attention: str = "sdpa", seed: int = 0) -> nn.Module:
    """A two-layer model of a family with random weights, in evaluation mode."""
    import transformers as tf

    common = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    wide = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    builders = {
        "bert": lambda: tf.BertModel(tf.BertConfig(**common, **wide)),
        "roberta": lambda: tf.RobertaModel(tf.RobertaConfig(**common, **wide)),
        "gpt2": lambda: tf.GPT2Model(tf.GPT2Config(**common, n_embd=32, n_layer=2, n_head=4)),
        "gpt_neox": lambda: tf.GPTNeoXModel(tf.GPTNeoXConfig(**common, **wide)),
        "llama": lambda: tf.LlamaModel(tf.LlamaConfig(**common, **wide, num_key_value_heads=2)),
        "t5": lambda: tf.T5Model(
            tf.T5Config(**common, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
        ),
        "xlnet": lambda: tf.XLNetModel(tf.XLNetConfig(**common, d_model=32, n_layer=2, n_head=4, d_inner=48)),
    }
    torch.manual_seed(seed)
    model = builders[family]().eval()
    if family != "xlnet":
        model.set_attn_implementation(attention)
    for parameter in model.parameters():  # initialisations of 0.02 leave every map near uniform
        if parameter.dim() > 1:
            parameter.data.mul_(4)
    return model


def token_batch(family: str = "bert", rows: int = 3, length: int = 7, seed: int = 0) -> dict:
    """Token ids with the last row padded, and a decoder's inputs where there is one."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 50, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    mask[-1, -2:] = 0
    ids[-1, -2:] = 0
    batch = {"input_ids": ids, "attention_mask": mask}
    if family == "t5":
        batch["decoder_input_ids"] = torch.randint(3, 50, (rows, length - 2), generator=generator)
    return batch


class HandWritten(nn.Module):
    """A language model as one writes it in an afternoon; its mask is right, finite, multiplicative or absent.

    `mask="multiply"` is the mistake of multiplying the scores by a 0/1 mask, which
    gives future positions the score 0 instead of −∞.
    """

    def __init__(self, mask: str = "fill", layers: int = 2, positions: bool = True, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.position = nn.Parameter(torch.randn(128, width)) if positions else None
        self.blocks = nn.ModuleList(HandBlock(width, mask) for _ in range(layers))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        if self.position is not None:
            x = x + self.position[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return x


class HandBlock(nn.Module):
    def __init__(self, width: int, mask: str, heads: int = 4) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm = nn.LayerNorm(width)
        self.heads, self.mask = heads, mask
        self.register_buffer("tril", torch.ones(128, 128).tril(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        allowed = self.tril[: x.shape[1], : x.shape[1]]
        if self.mask == "fill":
            scores = scores.masked_fill(allowed == 0, -torch.inf)
        elif self.mask == "finite":
            scores = scores.masked_fill(allowed == 0, -1e4)
        elif self.mask == "multiply":
            scores = scores * allowed
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return self.norm(x + self.out(mixed))
