"""Language models in transformers."""

from __future__ import annotations

from benchmarks.hub_family import BERT, BLOOM, GPT, GROUPED, IDS, OPT, Family
from benchmarks.reference_float64 import maps_with_sink

DECODERS = {
    "GPT-2": Family("GPT2", GPT, ("h.*",), ("h.*.attn",)),
    "GPT-Neo": Family(
        "GPTNeo",
        {
            **IDS,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "intermediate_size": 48,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
        },
        ("h.*",),
        ("h.*.attn.attention",),
    ),
    "GPT-NeoX": Family("GPTNeoX", BERT, ("layers.*",), ("layers.*.attention",)),
    "GPT-J": Family("GPTJ", {**GPT, "rotary_dim": 4}, ("h.*",), ("h.*.attn",)),
    "OPT": Family(
        "OPT", {**OPT, "word_embed_proj_dim": 32}, ("decoder.layers.*",), ("decoder.layers.*.self_attn",)
    ),
    "BLOOM": Family("Bloom", BLOOM, ("h.*",), ("h.*.self_attention",)),
    "MPT": Family(
        "Mpt", {**IDS, "d_model": 32, "n_heads": 4, "n_layers": 2}, ("blocks.*",), ("blocks.*.attn",)
    ),
    "Falcon": Family(
        "Falcon",
        {**IDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
        ("h.*",),
        ("h.*.self_attention",),
    ),
    "Phi": Family("Phi", BERT, ("layers.*",), ("layers.*.self_attn",)),
    "Llama": Family("Llama", GROUPED, ("layers.*",), ("layers.*.self_attn",)),
    "Llama 4": Family(
        "Llama4Text",
        {
            **GROUPED,
            "head_dim": 8,
            "num_local_experts": 2,
            "attention_chunk_size": 4,
            "intermediate_size_mlp": 48,
            "interleave_moe_layer_step": 2,
            "num_hidden_layers": 4,
        },
        ("layers.*",),
        ("layers.*.self_attn",),
    ),
    "Mistral": Family("Mistral", {**GROUPED, "sliding_window": 4}, ("layers.*",), ("layers.*.self_attn",)),
    "Qwen2": Family("Qwen2", GROUPED, ("layers.*",), ("layers.*.self_attn",)),
    "Qwen3": Family("Qwen3", {**GROUPED, "head_dim": 8}, ("layers.*",), ("layers.*.self_attn",)),
    "Gemma 2": Family(
        "Gemma2",
        {**GROUPED, "head_dim": 8, "sliding_window": 4},
        ("layers.*",),
        ("layers.*.self_attn",),
        eager=True,
        note="soft cap",
    ),
    "Gemma 3": Family(
        "Gemma3Text", {**GROUPED, "head_dim": 8, "sliding_window": 4}, ("layers.*",), ("layers.*.self_attn",)
    ),
    "OLMo 2": Family("Olmo2", GROUPED, ("layers.*",), ("layers.*.self_attn",)),
    "GPT-OSS": Family(
        "GptOss",
        {**GROUPED, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4},
        ("layers.*",),
        ("layers.*.self_attn",),
        maps=maps_with_sink,
        note="a sink beside the keys",
    ),
    "DeepSeek-V3": Family(
        "DeepseekV3",
        {
            **BERT,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "moe_intermediate_size": 16,
            "first_k_dense_replace": 1,
            "num_key_value_heads": 4,
        },
        ("layers.*",),
        ("layers.*.self_attn",),
    ),
    "Mixtral": Family(
        "Mixtral",
        {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
        ("layers.*",),
        ("layers.*.self_attn",),
    ),
}
