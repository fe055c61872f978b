"""Encoders with decoders, images, sound, and recurrent networks in transformers."""

from __future__ import annotations

import torch

from benchmarks.architecture_case import token_inputs
from benchmarks.hub_family import BART, BERT, GROUPED, IDS, IMAGE, SIZE, SWIN, Family, decoding, pixels
from benchmarks.reference_float64 import prophet_maps

WITH_DECODER_OR_IMAGES = {
    "T5": Family(
        "T5",
        {
            **IDS,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 4,
            "decoder_start_token_id": 0,
        },
        ("encoder.block.*", "decoder.block.*"),
        (
            "encoder.block.*.layer.0.SelfAttention",
            "decoder.block.*.layer.0.SelfAttention",
            "decoder.block.*.layer.1.EncDecAttention",
        ),
        decoding(token_inputs()),
    ),
    "BART": Family(
        "Bart",
        BART,
        ("encoder.layers.*", "decoder.layers.*"),
        ("encoder.layers.*.self_attn", "decoder.layers.*.self_attn", "decoder.layers.*.encoder_attn"),
        decoding(token_inputs()),
    ),
    "Marian": Family(
        "Marian",
        BART,
        ("encoder.layers.*", "decoder.layers.*"),
        ("encoder.layers.*.self_attn", "decoder.layers.*.self_attn", "decoder.layers.*.encoder_attn"),
        decoding(token_inputs()),
    ),
    "Pegasus": Family(
        "Pegasus",
        BART,
        ("encoder.layers.*", "decoder.layers.*"),
        ("encoder.layers.*.self_attn", "decoder.layers.*.self_attn", "decoder.layers.*.encoder_attn"),
        decoding(token_inputs()),
    ),
    "ProphetNet": Family(
        "ProphetNet",
        {
            **IDS,
            "hidden_size": 32,
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "num_encoder_attention_heads": 4,
            "num_decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "max_position_embeddings": 64,
        },
        ("encoder.layers.*", "decoder.layers.*"),
        ("encoder.layers.*.self_attn", "decoder.layers.*.self_attn", "decoder.layers.*.cross_attn"),
        decoding(token_inputs()),
        asked=True,
        maps=prophet_maps,
    ),
    "Whisper": Family(
        "Whisper",
        {**BART, "num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 20},
        ("encoder.layers.*", "decoder.layers.*"),
        ("encoder.layers.*.self_attn", "decoder.layers.*.self_attn", "decoder.layers.*.encoder_attn"),
        decoding({"input_features": torch.randn(3, 8, 20, generator=torch.Generator().manual_seed(3))}),
    ),
    "Wav2Vec 2": Family(
        "Wav2Vec2",
        {
            **SIZE,
            "conv_dim": [16, 16],
            "conv_stride": [4, 4],
            "conv_kernel": [8, 4],
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 4,
            "num_conv_pos_embedding_groups": 2,
            "feat_extract_norm": "layer",
        },
        ("encoder.layers.*",),
        ("encoder.layers.*.attention",),
        {"input_values": torch.randn(3, 200, generator=torch.Generator().manual_seed(3))},
    ),
    "ViT": Family("ViT", IMAGE, ("layers.*",), ("layers.*.attention",), pixels()),
    "Swin": Family(
        "Swin", SWIN, ("encoder.layers.*.blocks.*",), ("encoder.layers.*.blocks.*.attention",), pixels(32)
    ),
    "Swin v2": Family(
        "Swinv2",
        SWIN,
        ("encoder.layers.*.blocks.*",),
        ("encoder.layers.*.blocks.*.attention.self",),
        pixels(32),
        asked=True,
    ),
    "CLIP": Family(
        "CLIP",
        {
            "text_config": {**BERT, "max_position_embeddings": 16},
            "vision_config": IMAGE,
            "projection_dim": 16,
        },
        ("text_model.encoder.layers.*", "vision_model.encoder.layers.*"),
        ("text_model.encoder.layers.*.self_attn", "vision_model.encoder.layers.*.self_attn"),
        {**token_inputs(), **pixels()},
    ),
    "Perceiver": Family(
        "Perceiver",
        {
            "num_latents": 5,
            "d_latents": 32,
            "d_model": 16,
            "num_blocks": 1,
            "num_self_attends_per_block": 2,
            "num_self_attention_heads": 4,
            "num_cross_attention_heads": 4,
        },
        ("encoder.cross_attention", "encoder.self_attends.*"),
        ("encoder.cross_attention.attention.self", "encoder.self_attends.*.attention.self"),
        {"inputs": torch.randn(3, 9, 16, generator=torch.Generator().manual_seed(3))},
        asked=True,
    ),
}

RECURRENT = {
    "Mamba": Family(
        "Mamba",
        {**IDS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "intermediate_size": 64},
        ("layers.*",),
    ),
    "Mamba 2": Family(
        "Mamba2",
        {
            **IDS,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "state_size": 8,
            "num_heads": 8,
            "head_dim": 8,
            "n_groups": 1,
            "expand": 2,
            "chunk_size": 8,
        },
        ("layers.*",),
    ),
    "Jamba": Family(
        "Jamba",
        {
            **GROUPED,
            "num_hidden_layers": 4,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "num_experts": 2,
            "use_mamba_kernels": False,
            "mamba_d_state": 4,
            "mamba_dt_rank": 4,
        },
        ("layers.*",),
        ("layers.1.self_attn", "layers.3.self_attn"),
    ),
    "RWKV": Family(
        "Rwkv",
        {
            **IDS,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "attention_hidden_size": 32,
            "intermediate_size": 48,
        },
        ("blocks.*",),
    ),
    "RecurrentGemma": Family(
        "RecurrentGemma",
        {**GROUPED, "num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 8, "head_dim": 8},
        ("layers.*",),
        ("layers.2.temporal_block",),
        note="one of three layers attends",
    ),
    "Qwen3-Next": Family(
        "Qwen3Next",
        {
            **GROUPED,
            "head_dim": 8,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "num_hidden_layers": 4,
        },
        ("layers.*",),
        ("layers.3.self_attn",),
        note="one of four layers attends visibly",
    ),
}
