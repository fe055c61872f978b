"""How a small random model of a family in transformers is built, and where its blocks and attention are.

The paths are written by hand, so that they also check what normscope finds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.architecture_case import ArchitectureCase, grown, token_inputs

VOCABULARY = 50
IDS = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
BERT = {**IDS, **SIZE}
GPT = {**IDS, "n_embd": 32, "n_layer": 2, "n_head": 4}
OPT = {**IDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48}
BLOOM = {**IDS, "hidden_size": 32, "n_layer": 2, "n_head": 4}
GROUPED = {**BERT, "num_key_value_heads": 2}
BART = {
    **IDS,
    "d_model": 32,
    **{f"{side}_{name}": size for side in ("encoder", "decoder")
       for name, size in {"layers": 2, "attention_heads": 4, "ffn_dim": 48}.items()},
    "max_position_embeddings": 64,
    "decoder_start_token_id": 1,
}  # fmt: skip
IMAGE = {**SIZE, "image_size": 16, "patch_size": 4, "num_channels": 3}
SWIN = {
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}


def pixels(size: int = 16) -> dict[str, Tensor]:
    """Three random images."""
    return {"pixel_values": torch.randn(3, 3, size, size, generator=torch.Generator().manual_seed(5))}


def decoding(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inputs of an encoder, and tokens for the decoder."""
    generator = torch.Generator().manual_seed(9)
    rows = len(next(iter(inputs.values())))
    return {**inputs, "decoder_input_ids": torch.randint(3, VOCABULARY, (rows, 6), generator=generator)}


@dataclass(frozen=True)
class Family:
    """How one family is built: the prefix of its classes, the config, the inputs, and where things are."""

    prefix: str
    config: Mapping[str, Any]
    blocks: tuple[str, ...]
    attention: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=token_inputs)
    note: str = ""
    eager: bool = False
    asked: bool = False
    hidden: str = ""
    maps: Callable[..., Tensor | None] | None = None

    def build(self, name: str, seed: int) -> ArchitectureCase:
        """The case, with a random model."""
        import transformers as tf

        torch.manual_seed(seed)
        config = getattr(tf, f"{self.prefix}Config")(**self.config)
        if self.eager:
            config._attn_implementation = "eager"
        model: nn.Module = getattr(tf, f"{self.prefix}Model")(config)
        return ArchitectureCase(
            name, grown(model), dict(self.inputs), self.blocks, self.attention, self.maps, self.note,
            ask_for_maps=self.asked, hidden=self.hidden,
        )  # fmt: skip
