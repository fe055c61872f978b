"""Small random models of the families in transformers, with the paths of their blocks and attention modules.

The paths are written by hand, so that they also check what normscope finds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.architecture_case import ArchitectureCase, grown, token_inputs
from benchmarks.reference_float64 import maps_with_sink, prophet_maps, squeezed_maps, transformer_xl_maps, windowed_maps

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
SWIN = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}


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


FAMILIES = {
    "BERT": Family("Bert", BERT, ("encoder.layer.*",), ("encoder.layer.*.attention.self",)),
    "RoBERTa": Family("Roberta", BERT, ("encoder.layer.*",), ("encoder.layer.*.attention.self",)),
    "DistilBERT": Family("DistilBert", {**IDS, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}, ("transformer.layer.*",), ("transformer.layer.*.attention",)),
    "ALBERT": Family("Albert", {**BERT, "embedding_size": 16, "num_hidden_layers": 3}, ("encoder.albert_layer_groups.*",), ("encoder.albert_layer_groups.0.albert_layers.0.attention",), note="one block, three turns"),
    "ELECTRA": Family("Electra", {**BERT, "embedding_size": 16}, ("encoder.layer.*",), ("encoder.layer.*.attention.self",)),
    "DeBERTa": Family("Deberta", {**BERT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 16}, ("encoder.layer.*",), ("encoder.layer.*.attention.self",), asked=True),
    "DeBERTa-v2": Family("DebertaV2", {**BERT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 16}, ("encoder.layer.*",), ("encoder.layer.*.attention.self",), asked=True),
    "MPNet": Family("MPNet", BERT, ("encoder.layer.*",), ("encoder.layer.*.attention.attn",), asked=True),
    "ModernBERT": Family("ModernBert", {**BERT, "num_hidden_layers": 3, "local_attention": 4, "global_attn_every_n_layers": 3}, ("layers.*",), ("layers.*.attn",)),
    "XLNet": Family("XLNet", {**IDS, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}, ("layer.*",), ("layer.*.rel_attn",), asked=True, maps=transformer_xl_maps),
    "Funnel": Family("Funnel", {**IDS, "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48, "block_sizes": [2, 2], "num_decoder_layers": 1}, ("encoder.blocks.*.*", "decoder.layers.*"), ("encoder.blocks.*.*.attention", "decoder.layers.*.attention"), asked=True),
    "GPT-2": Family("GPT2", GPT, ("h.*",), ("h.*.attn",)),
    "GPT-Neo": Family("GPTNeo", {**IDS, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "intermediate_size": 48, "attention_types": [[["global", "local"], 1]], "window_size": 4}, ("h.*",), ("h.*.attn.attention",)),
    "GPT-NeoX": Family("GPTNeoX", BERT, ("layers.*",), ("layers.*.attention",)),
    "GPT-J": Family("GPTJ", {**GPT, "rotary_dim": 4}, ("h.*",), ("h.*.attn",)),
    "OPT": Family("OPT", {**OPT, "word_embed_proj_dim": 32}, ("decoder.layers.*",), ("decoder.layers.*.self_attn",)),
    "BLOOM": Family("Bloom", BLOOM, ("h.*",), ("h.*.self_attention",)),
    "MPT": Family("Mpt", {**IDS, "d_model": 32, "n_heads": 4, "n_layers": 2}, ("blocks.*",), ("blocks.*.attn",)),
    "Falcon": Family("Falcon", {**IDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}, ("h.*",), ("h.*.self_attention",)),
    "Phi": Family("Phi", BERT, ("layers.*",), ("layers.*.self_attn",)),
    "Llama": Family("Llama", GROUPED, ("layers.*",), ("layers.*.self_attn",)),
    "Mistral": Family("Mistral", {**GROUPED, "sliding_window": 4}, ("layers.*",), ("layers.*.self_attn",)),
    "Qwen2": Family("Qwen2", GROUPED, ("layers.*",), ("layers.*.self_attn",)),
    "Qwen3": Family("Qwen3", {**GROUPED, "head_dim": 8}, ("layers.*",), ("layers.*.self_attn",)),
    "Gemma 2": Family("Gemma2", {**GROUPED, "head_dim": 8, "sliding_window": 4}, ("layers.*",), ("layers.*.self_attn",), eager=True, note="soft cap"),
    "OLMo 2": Family("Olmo2", GROUPED, ("layers.*",), ("layers.*.self_attn",)),
    "Mixtral": Family("Mixtral", {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}, ("layers.*",), ("layers.*.self_attn",)),
    "T5": Family("T5", {**IDS, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}, ("encoder.block.*", "decoder.block.*"), ("encoder.block.*.layer.0.SelfAttention", "decoder.block.*.layer.0.SelfAttention", "decoder.block.*.layer.1.EncDecAttention"), decoding(token_inputs())),
    "BART": Family("Bart", BART, ("encoder.layers.*", "decoder.layers.*"), ("encoder.layers.*.self_attn", "decoder.layers.*.self_attn", "decoder.layers.*.encoder_attn"), decoding(token_inputs())),
    "Marian": Family("Marian", BART, ("encoder.layers.*", "decoder.layers.*"), ("encoder.layers.*.self_attn", "decoder.layers.*.self_attn", "decoder.layers.*.encoder_attn"), decoding(token_inputs())),
    "Pegasus": Family("Pegasus", BART, ("encoder.layers.*", "decoder.layers.*"), ("encoder.layers.*.self_attn", "decoder.layers.*.self_attn", "decoder.layers.*.encoder_attn"), decoding(token_inputs())),
    "Whisper": Family("Whisper", {**BART, "num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 20}, ("encoder.layers.*", "decoder.layers.*"), ("encoder.layers.*.self_attn", "decoder.layers.*.self_attn", "decoder.layers.*.encoder_attn"), decoding({"input_features": torch.randn(3, 8, 20, generator=torch.Generator().manual_seed(3))})),
    "ViT": Family("ViT", IMAGE, ("layers.*",), ("layers.*.attention",), pixels()),
    "Swin": Family("Swin", SWIN, ("encoder.layers.*.blocks.*",), ("encoder.layers.*.blocks.*.attention",), pixels(32)),
    "Swin v2": Family("Swinv2", SWIN, ("encoder.layers.*.blocks.*",), ("encoder.layers.*.blocks.*.attention.self",), pixels(32), asked=True),
    "CLIP": Family("CLIP", {"text_config": {**BERT, "max_position_embeddings": 16}, "vision_config": IMAGE, "projection_dim": 16}, ("text_model.encoder.layers.*", "vision_model.encoder.layers.*"), ("text_model.encoder.layers.*.self_attn", "vision_model.encoder.layers.*.self_attn"), {**token_inputs(), **pixels()}),
    "Perceiver": Family("Perceiver", {"num_latents": 5, "d_latents": 32, "d_model": 16, "num_blocks": 1, "num_self_attends_per_block": 2, "num_self_attention_heads": 4, "num_cross_attention_heads": 4}, ("encoder.cross_attention", "encoder.self_attends.*"), ("encoder.cross_attention.attention.self", "encoder.self_attends.*.attention.self"), {"inputs": torch.randn(3, 9, 16, generator=torch.Generator().manual_seed(3))}, asked=True),
    "Mamba": Family("Mamba", {**IDS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "intermediate_size": 64}, ("layers.*",)),
    "Jamba": Family("Jamba", {**GROUPED, "num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "num_experts": 2, "use_mamba_kernels": False, "mamba_d_state": 4, "mamba_dt_rank": 4}, ("layers.*",), ("layers.1.self_attn", "layers.3.self_attn")),
    "RWKV": Family("Rwkv", {**IDS, "hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32, "intermediate_size": 48}, ("blocks.*",)),
    "SqueezeBERT": Family("SqueezeBert", {**BERT, "embedding_size": 32}, (), ("encoder.layers.*.attention",), asked=True, hidden="encoder.layers", maps=squeezed_maps, note="convolutions, forward called directly"),
    "Longformer": Family("Longformer", {**BERT, "attention_window": 4, "max_position_embeddings": 64}, ("encoder.layer.*",), ("encoder.layer.*.attention.self",), asked=True, maps=windowed_maps),
    "ConvBERT": Family("ConvBert", {**BERT, "embedding_size": 32}, ("encoder.layer.*",), ("encoder.layer.*.attention.self",), asked=True),
    "XLM": Family("XLM", {**IDS, "emb_dim": 32, "n_layers": 2, "n_heads": 4}, (), ("attentions.*",), asked=True, hidden="attentions", note="no blocks, four lists"),
    "FNet": Family("FNet", BERT, ("encoder.layer.*",), inputs={"input_ids": token_inputs()["input_ids"]}),
    "GPT-OSS": Family("GptOss", {**GROUPED, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4}, ("layers.*",), ("layers.*.self_attn",), maps=maps_with_sink, note="a sink beside the keys"),
    "DeepSeek-V3": Family("DeepseekV3", {**BERT, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 16, "first_k_dense_replace": 1, "num_key_value_heads": 4}, ("layers.*",), ("layers.*.self_attn",)),
    "Gemma 3": Family("Gemma3Text", {**GROUPED, "head_dim": 8, "sliding_window": 4}, ("layers.*",), ("layers.*.self_attn",)),
    "Llama 4": Family("Llama4Text", {**GROUPED, "head_dim": 8, "num_local_experts": 2, "attention_chunk_size": 4, "intermediate_size_mlp": 48, "interleave_moe_layer_step": 2, "num_hidden_layers": 4}, ("layers.*",), ("layers.*.self_attn",)),
    "ProphetNet": Family("ProphetNet", {**IDS, "hidden_size": 32, "num_encoder_layers": 2, "num_decoder_layers": 2, "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64}, ("encoder.layers.*", "decoder.layers.*"), ("encoder.layers.*.self_attn", "decoder.layers.*.self_attn", "decoder.layers.*.cross_attn"), decoding(token_inputs()), asked=True, maps=prophet_maps),
    "Wav2Vec 2": Family("Wav2Vec2", {**SIZE, "conv_dim": [16, 16], "conv_stride": [4, 4], "conv_kernel": [8, 4], "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "feat_extract_norm": "layer"}, ("encoder.layers.*",), ("encoder.layers.*.attention",), {"input_values": torch.randn(3, 200, generator=torch.Generator().manual_seed(3))}),
    "Mamba 2": Family("Mamba2", {**IDS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 1, "expand": 2, "chunk_size": 8}, ("layers.*",)),
    "RecurrentGemma": Family("RecurrentGemma", {**GROUPED, "num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 8, "head_dim": 8}, ("layers.*",), ("layers.2.temporal_block",), note="one of three layers attends"),
    "Qwen3-Next": Family("Qwen3Next", {**GROUPED, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "num_hidden_layers": 4}, ("layers.*",), ("layers.3.self_attn",), note="one of four layers attends visibly"),
}
