"""Real architectures: the number of blocks and heads that their configs say."""

from __future__ import annotations

import pytest
import torch

from normscope.network.measuring.lookahead import looks_ahead
from normscope.network.measuring.saturation import Limit, saturation
from normscope.network.running.batches import as_batch
from normscope.network.watching.block_lists import attention_note, find_blocks
from normscope.network.watching.tap import tap

tf = pytest.importorskip("transformers")

IDS = torch.randint(3, 50, (2, 16), generator=torch.Generator().manual_seed(0))
PIXELS = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
COMMON = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
WIDE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
SEQ2SEQ = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
}
WINDOWS = {"image_size": 32, "patch_size": 4, "embed_dim": 8, "num_heads": [2, 4], "window_size": 4}


def funnel():
    config = tf.FunnelConfig(
        vocab_size=50, block_sizes=[2, 3], num_decoder_layers=2, d_model=16, n_head=2, d_head=8, d_inner=32
    )
    return tf.FunnelModel(config), {"input_ids": IDS}, [5, 2], [2] * 7


def swin():
    return tf.SwinModel(tf.SwinConfig(**WINDOWS, depths=[2, 2])), {"pixel_values": PIXELS}, [4], [2, 2, 4, 4]


def swin_of_uneven_depth():
    return tf.Swinv2Model(tf.Swinv2Config(**WINDOWS, depths=[1, 2])), {"pixel_values": PIXELS}, [3], [2, 4, 4]


def donut():
    config = tf.models.donut.configuration_donut_swin.DonutSwinConfig(**WINDOWS, depths=[2, 1])
    return tf.DonutSwinModel(config), {"pixel_values": PIXELS}, [3], [2, 2, 4]


def segformer():
    config = tf.SegformerConfig(
        depths=[1, 2],
        num_encoder_blocks=2,
        sr_ratios=[2, 1],
        hidden_sizes=[8, 16],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
    )
    return tf.SegformerModel(config), {"pixel_values": PIXELS}, [3], [1, 2, 2]


def albert():
    config = tf.AlbertConfig(
        vocab_size=50,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=16,
    )
    return tf.AlbertModel(config), {"input_ids": IDS}, [1], [2] * 3


def perceiver():
    config = tf.PerceiverConfig(
        num_latents=4,
        d_latents=8,
        d_model=16,
        num_blocks=2,
        num_self_attends_per_block=3,
        num_self_attention_heads=2,
        num_cross_attention_heads=1,
    )
    return tf.PerceiverModel(config), {"inputs": torch.randn(2, 10, 16)}, [1, 3], [1] + [2] * 6


def bart():
    batch = {"input_ids": IDS, "decoder_input_ids": IDS.flip(1)}
    return tf.BartModel(tf.BartConfig(**COMMON, **SEQ2SEQ)), batch, [2, 3], [4] * 2 + [2] * 6


def jamba():
    config = tf.JambaConfig(
        **COMMON,
        **{**WIDE, "num_hidden_layers": 4},
        num_key_value_heads=2,
        attn_layer_period=4,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=2,
        use_mamba_kernels=False,
    )
    return tf.JambaModel(config), {"input_ids": IDS}, [4], [4]


def mixtral():
    config = tf.MixtralConfig(
        **COMMON, **WIDE, num_key_value_heads=2, num_local_experts=16
    )  # as many as tokens
    return tf.MixtralModel(config), {"input_ids": IDS}, [2], [4, 4]


def mamba():
    config = tf.MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=3, state_size=4)
    return tf.MambaModel(config), {"input_ids": IDS}, [3], []


def rwkv():
    config = tf.RwkvConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=3, attention_hidden_size=16, intermediate_size=32
    )
    return tf.RwkvModel(config), {"input_ids": IDS}, [3], []


def clip():
    config = tf.CLIPConfig(
        text_config={**COMMON, **WIDE, "num_hidden_layers": 3},
        vision_config={**WIDE, "image_size": 16, "patch_size": 8},
        projection_dim=8,
    )
    batch = {"input_ids": IDS, "pixel_values": torch.randn(2, 3, 16, 16)}
    return tf.CLIPModel(config), batch, [2, 3], [4] * 5


MODELS = (
    funnel,
    swin,
    swin_of_uneven_depth,
    donut,
    segformer,
    albert,
    perceiver,
    bart,
    jamba,
    mixtral,
    mamba,
    rwkv,
    clip,
)


@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
def test_blocks_and_heads_are_those_of_the_config(build):
    torch.manual_seed(0)
    model, batch, blocks, heads = build()
    model.eval()
    lists = find_blocks(model, as_batch(batch))
    assert [len(each.blocks) for each in lists] == blocks
    seen: dict[str, int] = {}

    def look(call):
        seen[call.name] = max(seen.get(call.name, 0), call.head + call.heads)

    with torch.no_grad(), tap(model, look):
        model(**batch)
    assert list(seen.values()) == heads
    assert (attention_note(lists) is None) == bool(heads)
    layers = saturation(model, [batch], limit=Limit((2.0**4,))).layers
    turns = len(heads) if build is albert else len(heads[1:]) + 1 if build is perceiver else sum(blocks)
    assert len(layers) == turns + len(blocks)  # and the input of each list
    assert len({layer.module for layer in layers}) == len(layers)


def test_cross_attention_has_its_own_rows_although_both_lengths_are_equal():
    model, batch, _, _ = bart()
    found = {}
    with torch.no_grad(), tap(model.eval(), lambda call: found.update({call.module: call.cross})):
        model(**batch)
    assert {name for name, cross in found.items() if cross} == {
        f"decoder.layers.{i}.encoder_attn" for i in range(3)
    }


def test_states_of_another_length_do_not_count_as_looking_ahead():
    model, batch, _, _ = funnel()
    assert looks_ahead(model, batch).sees_future
    model, batch, _, _ = mamba()
    assert not looks_ahead(model, batch).sees_future
