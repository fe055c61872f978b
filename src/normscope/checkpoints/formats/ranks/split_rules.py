"""How tensor parallelism divides the tensors of known layouts: along which axis, or a copy on every rank.

Sources: the modules of megatron.core (tensor_parallel/layers.py, transformer/attention.py, mlp.py and
models/gpt), fairscale's model-parallel layers as Meta's llama uses them, and gpt-neox (megatron/model).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

COPY = -1
"""Every rank has the whole tensor."""


@dataclass(frozen=True)
class SplitRule:
    """The axis along which tensors of these names are divided, or COPY.

    `gated`: the first axis may be two matrices one after the other, a gate and a value, of which each rank
    has a part. `fused`: it may be query, key and value one after the other, in files of old versions.
    """

    names: re.Pattern[str]
    axis: int
    gated: bool = False
    fused: bool = False


def _rule(names: str, axis: int, *, gated: bool = False, fused: bool = False) -> SplitRule:
    return SplitRule(re.compile(rf"(?:.*[._])?(?:{names})"), axis, gated, fused)


_NORM = r"[a-z0-9_]*(?:layer_?norm|norm)[a-z0-9_]*(?:[._](?:weight|bias|scale))?"
_EXPERT = r"experts\.linear_fc"

MEGATRON = (
    _rule(r"linear_(?:qkv|fc1)\.layer_norm_(?:weight|bias)", COPY),
    _rule(_NORM, COPY),
    _rule(r"lm_head\.dense\.(?:weight|bias)|(?:pooler|binary_head)\..*", COPY),
    _rule(r"(?:position|tokentype|token_type)_embeddings(?:\.weight)?", COPY),
    _rule(r"word_embeddings(?:_for_head)?\.weight|embed(?:_in|_out)\.weight", 0),
    _rule(r"(?:output_layer|final_linear|lm_head)\.(?:weight|bias)|lm_head_bias", 0),
    _rule(r"(?:linear_qkv|query_key_value)\.(?:weight|bias)", 0, fused=True),
    _rule(r"(?:linear_q|linear_kv|query|key_value|linear_[qk]v?_up_proj)\.(?:weight|bias)", 0),
    _rule(r"(?:linear_proj|attention\.dense)\.weight", 1),
    _rule(r"(?:linear_proj|attention\.dense)\.bias", COPY),
    _rule(rf"(?:linear_fc1|dense_h_to_4h)\.(?:weight|bias)|{_EXPERT}1\.(?:weight|bias)\d+", 0, gated=True),
    _rule(rf"(?:linear_fc2|dense_4h_to_h)\.weight|{_EXPERT}2\.weight\d+", 1),
    _rule(rf"(?:linear_fc2|dense_4h_to_h)\.bias|{_EXPERT}2\.bias\d+", COPY),
    _rule(r"mlp\.w[13]\.weight", 0),
    _rule(r"mlp\.w2\.weight", 1),
    _rule(r"router\.(?:weight|bias|expert_bias)|shared_experts\.gate_weight", COPY),
    _rule(r"rotary_(?:pos_)?emb\.inv_freq|inv_freq", COPY),
)
"""Megatron-LM, Megatron-Core, Megatron-DeepSpeed and GPT-NeoX: column-parallel, then row-parallel layers."""

META = (
    _rule(r"norm\.weight|(?:attention|ffn|q|k)_norm\.weight|rope\.freqs", COPY),
    _rule(r"attention\.w[qkv]\.(?:weight|bias)|feed_forward\.w[13]\.weight|output\.weight", 0),
    _rule(r"attention\.wo\.weight|feed_forward\.w2\.weight", 1),
)
"""Meta's releases; tok_embeddings is divided along either axis, which its shape tells."""


def find_rule(name: str, rules: tuple[SplitRule, ...]) -> SplitRule | None:
    """The first rule for a name."""
    return next((rule for rule in rules if rule.names.fullmatch(name)), None)
