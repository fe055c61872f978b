"""Encoders of text in transformers."""

from __future__ import annotations

from benchmarks.architecture_case import token_inputs
from benchmarks.hub_family import BERT, IDS, Family
from benchmarks.reference_float64 import squeezed_maps, transformer_xl_maps, windowed_maps

ENCODERS = {
    "BERT": Family("Bert", BERT, ("encoder.layer.*",), ("encoder.layer.*.attention.self",)),
    "RoBERTa": Family("Roberta", BERT, ("encoder.layer.*",), ("encoder.layer.*.attention.self",)),
    "DistilBERT": Family(
        "DistilBert",
        {**IDS, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
        ("transformer.layer.*",),
        ("transformer.layer.*.attention",),
    ),
    "ALBERT": Family(
        "Albert",
        {**BERT, "embedding_size": 16, "num_hidden_layers": 3},
        ("encoder.albert_layer_groups.*",),
        ("encoder.albert_layer_groups.0.albert_layers.0.attention",),
        note="one block, three turns",
    ),
    "ELECTRA": Family(
        "Electra", {**BERT, "embedding_size": 16}, ("encoder.layer.*",), ("encoder.layer.*.attention.self",)
    ),
    "DeBERTa": Family(
        "Deberta",
        {**BERT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 16},
        ("encoder.layer.*",),
        ("encoder.layer.*.attention.self",),
        asked=True,
    ),
    "DeBERTa-v2": Family(
        "DebertaV2",
        {**BERT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 16},
        ("encoder.layer.*",),
        ("encoder.layer.*.attention.self",),
        asked=True,
    ),
    "MPNet": Family("MPNet", BERT, ("encoder.layer.*",), ("encoder.layer.*.attention.attn",), asked=True),
    "ModernBERT": Family(
        "ModernBert",
        {**BERT, "num_hidden_layers": 3, "local_attention": 4, "global_attn_every_n_layers": 3},
        ("layers.*",),
        ("layers.*.attn",),
    ),
    "XLNet": Family(
        "XLNet",
        {**IDS, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48},
        ("layer.*",),
        ("layer.*.rel_attn",),
        asked=True,
        maps=transformer_xl_maps,
    ),
    "Funnel": Family(
        "Funnel",
        {
            **IDS,
            "d_model": 32,
            "n_head": 4,
            "d_head": 8,
            "d_inner": 48,
            "block_sizes": [2, 2],
            "num_decoder_layers": 1,
        },
        ("encoder.blocks.*.*", "decoder.layers.*"),
        ("encoder.blocks.*.*.attention", "decoder.layers.*.attention"),
        asked=True,
    ),
    "SqueezeBERT": Family(
        "SqueezeBert",
        {**BERT, "embedding_size": 32},
        (),
        ("encoder.layers.*.attention",),
        asked=True,
        hidden="encoder.layers",
        maps=squeezed_maps,
        note="convolutions, forward called directly",
    ),
    "Longformer": Family(
        "Longformer",
        {**BERT, "attention_window": 4, "max_position_embeddings": 64},
        ("encoder.layer.*",),
        ("encoder.layer.*.attention.self",),
        asked=True,
        maps=windowed_maps,
    ),
    "ConvBERT": Family(
        "ConvBert",
        {**BERT, "embedding_size": 32},
        ("encoder.layer.*",),
        ("encoder.layer.*.attention.self",),
        asked=True,
    ),
    "XLM": Family(
        "XLM",
        {**IDS, "emb_dim": 32, "n_layers": 2, "n_heads": 4},
        (),
        ("attentions.*",),
        asked=True,
        hidden="attentions",
        note="no blocks, four lists",
    ),
    "FNet": Family("FNet", BERT, ("encoder.layer.*",), inputs={"input_ids": token_inputs()["input_ids"]}),
}
