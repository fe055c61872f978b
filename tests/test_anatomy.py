"""Names of real model families, as the models themselves spell them."""

import pytest

from normscope.anatomy import ROLES, in_body, locate, locate_all, not_a_parameter, unwrapped

# (name, component, layer, role), a few telling ones of each family.
NAMES = [
    ("transformer.wte.weight", "model", None, "embedding"),
    ("transformer.h.11.attn.c_attn.weight", "model", 11, "qkv"),
    ("h.0.attn.c_proj.weight", "model", 0, "attention output"),
    ("h.0.mlp.c_fc.bias", "model", 0, "bias"),
    ("transformer.h.3.mlp.c_proj.weight", "model", 3, "mlp out"),
    ("transformer.ln_f.weight", "model", None, "norm"),
    ("gpt_neox.embed_in.weight", "model", None, "embedding"),
    ("gpt_neox.layers.5.attention.query_key_value.weight", "model", 5, "qkv"),
    ("gpt_neox.layers.5.mlp.dense_4h_to_h.weight", "model", 5, "mlp out"),
    ("embed_out.weight", "model", None, "head"),
    ("model.embed_tokens.weight", "model", None, "embedding"),
    ("model.layers.31.self_attn.q_proj.weight", "model", 31, "q"),
    ("model.layers.31.self_attn.k_proj.bias", "model", 31, "bias"),
    ("model.layers.2.mlp.gate_proj.weight", "model", 2, "gate"),
    ("model.layers.2.mlp.up_proj.weight", "model", 2, "mlp in"),
    ("model.layers.2.mlp.down_proj.weight", "model", 2, "mlp out"),
    ("model.layers.2.post_attention_layernorm.weight", "model", 2, "norm"),
    ("model.layers.2.self_attn.q_norm.weight", "model", 2, "norm"),
    ("model.norm.weight", "model", None, "norm"),
    ("lm_head.weight", "model", None, "head"),
    ("model.transformer.blocks.7.ff_proj.weight", "model", 7, "mlp in"),
    ("layers.4.feed_forward.w2.weight", "model", 4, "mlp out"),
    ("bert.embeddings.word_embeddings.weight", "model", None, "embedding"),
    ("bert.encoder.layer.3.attention.self.query.weight", "encoder", 3, "q"),
    ("bert.encoder.layer.3.attention.output.dense.weight", "encoder", 3, "attention output"),
    ("bert.encoder.layer.3.attention.output.LayerNorm.bias", "encoder", 3, "norm"),
    ("roberta.encoder.layer.3.intermediate.dense.weight", "encoder", 3, "mlp in"),
    ("encoder.layer.5.attention.attn.k.weight", "encoder", 5, "k"),
    ("encoder.relative_attention_bias.weight", "encoder", None, "bias"),
    ("cls.predictions.transform.dense.weight", "model", None, "head"),
    ("shared.weight", "model", None, "embedding"),
    ("encoder.block.3.layer.0.SelfAttention.v.weight", "encoder", 3, "v"),
    ("decoder.block.3.layer.1.EncDecAttention.o.weight", "decoder", 3, "attention output"),
    ("decoder.block.3.layer.2.DenseReluDense.wi_0.weight", "decoder", 3, "gate"),
    ("decoder.block.3.layer.2.DenseReluDense.wo.weight", "decoder", 3, "mlp out"),
    ("encoder/block_003/layer_000/SelfAttention/q", "encoder", 3, "q"),
    ("decoder/block_011/layer_002/DenseReluDense/wi/kernel", "decoder", 11, "mlp in"),
    ("encoder/block_003/layer_001/layer_norm/scale", "encoder", 3, "norm"),
    ("shared/embedding", "model", None, "embedding"),
    ("encoder.layers.1.self_attn.in_proj_weight", "encoder", 1, "qkv"),
    ("decoder.layers.1.multihead_attn.out_proj.weight", "decoder", 1, "attention output"),
    ("decoder.layers.1.linear2.weight", "decoder", 1, "mlp out"),
    ("encoder.layers.1.self_attn.in_proj_bias", "encoder", 1, "bias"),
    ("transformer.layer.4.rel_attn.q", "model", 4, "q"),
    ("blocks.6.attention.q.weight", "model", 6, "q"),
    ("head.weight", "model", None, "head"),
]


@pytest.mark.parametrize(("name", "component", "layer", "role"), NAMES)
def test_known_families(name, component, layer, role):
    place = locate(name)
    assert (place.component, place.layer, place.role, place.known) == (component, layer, role, True)
    assert role in ROLES


def test_whole_models_are_known():
    """Every parameter of a model built from its own config is recognised, none as `other`."""
    transformers = pytest.importorskip("transformers")
    import torch

    tiny = {"num_hidden_layers": 2}
    models = {
        "GPT2LMHeadModel": transformers.GPT2Config(n_layer=2),
        "GPTNeoXForCausalLM": transformers.GPTNeoXConfig(**tiny),
        "LlamaForCausalLM": transformers.LlamaConfig(**tiny),
        "MistralForCausalLM": transformers.MistralConfig(**tiny),
        "Qwen3ForCausalLM": transformers.Qwen3Config(**tiny),
        "Olmo2ForCausalLM": transformers.Olmo2Config(**tiny),
        "BertForMaskedLM": transformers.BertConfig(**tiny),
        "RobertaForMaskedLM": transformers.RobertaConfig(**tiny),
        "MPNetForMaskedLM": transformers.MPNetConfig(**tiny),
        "T5ForConditionalGeneration": transformers.T5Config(num_layers=2),
        "XLNetLMHeadModel": transformers.XLNetConfig(n_layer=2),
    }
    for name, config in models.items():
        with torch.device("meta"):
            model = getattr(transformers, name)(config)
        places = locate_all(key for key, _ in model.named_parameters())
        assert [key for key, place in places.items() if not place.known] == [], name
        assert {place.layer for place in places.values()} == {None, 0, 1}, name
        expected = {"encoder", "decoder", "model"} if name.startswith("T5") else {"model"}
        assert {place.component for place in places.values()} == expected, name


def test_an_unknown_name_keeps_its_first_number():
    place = locate("backbone.stage3.mixer7.weird")
    assert (place.layer, place.role, place.known) == (3, "other", False)
    assert locate("lonely").layer is None


def test_wrappers_are_stripped():
    inner = "model.layers.3.self_attn.q_proj.weight"
    wrapped = f"module._orig_mod.{inner}".replace("layers.3", "layers.3._checkpoint_wrapped_module")
    assert unwrapped(wrapped) == inner
    assert locate(wrapped) == locate(inner)


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("transformer.h.0.attn.bias", (1, 1, 1024, 1024), "attention mask"),
        ("gpt_neox.layers.0.attention.bias", (1, 1, 2048, 2048), "attention mask"),
        ("gpt_neox.layers.0.attention.masked_bias", (), "attention mask"),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", (64,), "rotary table"),
        ("bert.embeddings.position_ids", (1, 512), "index buffer"),
        ("encoder/block_000/layer_000/SelfAttention/q_slot_vr", (768,), "optimizer state"),
        ("global_step", (), "optimizer state"),
    ],
)
def test_buffers_are_not_parameters(name, shape, reason):
    assert not_a_parameter(name, shape) == reason


@pytest.mark.parametrize(
    "name", ["h.0.attn.c_attn.bias", "model.layers.0.self_attn.q_proj.weight", "attention.bias"]
)
def test_parameters_are_not_taken_for_buffers(name):
    assert not_a_parameter(name, (768,)) is None


def test_the_body_is_the_papers_scope():
    assert in_body("q", (4, 4))
    assert not in_body("embedding", (4, 4))
    assert not in_body("head", (4, 4))
    assert not in_body("other", ())
