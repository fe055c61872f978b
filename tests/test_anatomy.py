"""Names of real model families, as the models themselves spell them."""

import pytest

from normscope.anatomy import OUTSIDE_BODY, ROLES, in_body, locate, locate_all, unknown_tensors, unwrapped
from normscope.rows import TensorRow
from tests.nameless_models import nameless
from tests.tensor_names import table

# (name, component, layer, role), a few telling ones of each family.
NAMES = [
    ("transformer/~/h11_attn/~/query.w", "model", 11, "q"),
    ("transformer/h0_attn/linear.b", "model", 0, "bias"),
    ("transformer/h0_ln_1.offset", "model", 0, "norm"),
    ("transformer/~/embed.embeddings", "model", None, "embedding"),
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


def test_the_two_linear_maps_of_an_mlp_in_haiku():
    mlp = ["gpt/h0_mlp/linear.w", "gpt/h0_mlp/linear.b", "gpt/h0_mlp/linear_1.w"]
    assert [place.role for place in locate_all(mlp).values()] == ["mlp in", "bias", "mlp out"]


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


def test_the_body_is_the_papers_scope():
    assert in_body("q", (4, 4))
    assert not in_body("embedding", (4, 4))
    assert not in_body("head", (4, 4))
    assert not in_body("other", ())


@pytest.mark.parametrize(("name", "role", "layer"), table())
def test_names_of_other_programs(name, role, layer):
    place = locate(name)
    assert (place.role, place.layer, place.known) == (role, layer, True)


def test_a_gate_beside_experts_is_a_router():
    moe = locate_all(["h.0.mlp.gate.weight", "h.0.mlp.experts.0.up_proj.weight", "h.1.mlp.gate.weight"])
    assert [moe[f"h.{i}.mlp.gate.weight"].role for i in (0, 1)] == ["router", "gate"]


def test_two_towers_are_two_components():
    names = ["text_model.encoder.layers.0.fc1.weight", "vision_model.encoder.layers.0.fc1.weight"]
    assert [place.group for place in locate_all(names).values()] == ["text/00", "vision/00"]
    assert [place.group for place in locate_all(names[:1]).values()] == ["00"]


def test_a_tied_decoder_of_bert_is_no_second_stack():
    names = ["bert.encoder.layer.0.output.dense.weight", "cls.predictions.decoder.bias"]
    assert {place.component for place in locate_all(names).values()} == {"model"}


FAMILIES = (
    *("albert", "bart", "big_bird", "blenderbot", "bloom", "clip", "codegen", "convbert", "ctrl"),
    *("deberta", "deberta-v2", "deepseek_v3", "dinov2", "distilbert", "electra", "falcon", "falcon_mamba"),
    *("flaubert", "fnet", "fsmt", "funnel", "gemma", "gemma2", "gemma3_text", "gpt_bigcode", "gpt_neo"),
    *("gpt_oss", "gptj", "granitemoe", "hubert", "jamba", "led", "longformer", "mamba", "mamba2", "marian"),
    *("mbart", "mixtral", "mobilebert", "modernbert", "mpt", "mt5", "olmo", "olmoe", "opt", "pegasus"),
    *("persimmon", "phi", "phi3", "qwen2_moe", "qwen3_moe", "rembert", "rwkv", "siglip", "swin", "t5"),
    *("umt5", "vit", "vit_mae", "wav2vec2", "whisper", "xglm", "xlm", "zamba"),
)


def built(family):
    """A model of a family, built from its own config without memory; None if this release cannot."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

    config = CONFIG_MAPPING[family]()
    for auto in (AutoModelForCausalLM, AutoModelForMaskedLM, AutoModel):
        if type(config) in auto._model_mapping:
            with torch.device("meta"):
                return auto.from_config(config)
    return None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # transformers compiles parts of DeBERTa
@pytest.mark.parametrize("family", FAMILIES)
def test_embeddings_and_heads_are_where_the_model_says(family):
    pytest.importorskip("transformers")
    model = built(family)
    if model is None:
        pytest.skip("cannot be built")
    names = {id(p): name for name, p in model.named_parameters()}
    places = locate_all(names.values(), {name: tuple(p.shape) for name, p in model.named_parameters()})
    for ask in (model.get_input_embeddings, model.get_output_embeddings):
        try:
            weight = getattr(ask(), "weight", None)
        except NotImplementedError:
            continue
        if weight is not None and id(weight) in names:
            assert places[names[id(weight)]].role in OUTSIDE_BODY, names[id(weight)]
    for name in names.values():
        if places[name].role in OUTSIDE_BODY:
            assert "attn" not in name and "mlp" not in name, name


def found_outside(model):
    places = locate_all(model.shapes, model.shapes)
    return {name for name, place in places.items() if place.role in OUTSIDE_BODY}


@pytest.mark.parametrize("layers", [None, 1, 2])
@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("embeddings", [True, False])
def test_nothing_of_the_body_is_taken_for_an_embedding(layers, numbered, embeddings):
    for seed in range(25):
        model = nameless(seed, layers=layers, numbered=numbered, embeddings=embeddings)
        assert found_outside(model) <= model.outside, seed


def test_embeddings_and_heads_are_found_by_shape():
    """In at least nine of ten models of numbered layers; a vocabulary as long as the model is wide is not."""
    models = [nameless(seed) for seed in range(100)]
    several = [model for model in models if model.layers > 1]
    assert sum(model.tables <= found_outside(model) for model in several) > 0.9 * len(several)


def test_what_no_one_knows_is_named():
    shapes = {"foo.0.bar": (8, 8), "foo.1.bar": (8, 8), "wte.weight": (50, 8)}
    rows = [
        TensorRow(i, name, "model", None, locate_all(shapes, shapes)[name].role, shape, "float32", 1)
        for i, (name, shape) in enumerate(shapes.items())
    ]
    assert [row.name for row in unknown_tensors(rows)] == ["foo.0.bar", "foo.1.bar"]


def test_a_plain_mlp_has_no_embedding():
    shapes = {f"net.{2 * i}.weight": s for i, s in enumerate([(256, 784), (256, 256), (256, 256), (10, 256)])}
    assert not [name for name, place in locate_all(shapes, shapes).items() if place.role in OUTSIDE_BODY]


def roles_of(model):
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    return {name: place.role for name, place in locate_all(shapes, shapes).items()}


def test_a_language_model_of_encoder_and_decoder():
    from torch import nn

    inner = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64), 2, enable_nested_tensor=False)
    parts = {"encoder": nn.Embedding(500, 32), "transformer_encoder": inner, "decoder": nn.Linear(32, 500)}
    found = roles_of(nn.ModuleDict(parts))
    assert found["encoder.weight"] == "embedding"
    assert (found["decoder.weight"], found["decoder.bias"]) == ("head", "head")
    assert "other" not in found.values()


def test_an_autoencoder_has_no_embedding():
    from torch import nn

    found = roles_of(nn.ModuleDict({"encoder": nn.Linear(784, 32), "decoder": nn.Linear(32, 784)}))
    assert set(found.values()) == {"other"}


def test_an_mlp_outside_the_layers_is_no_embedding():
    layer = {"x": (96, 32), "y": (32, 32), "up": (128, 32), "z": (32, 128)}
    shapes = {f"foo.{i}.{name}.weight": shape for i in range(3) for name, shape in layer.items()}
    apart = {"bar.a.weight": (200, 32), "bar.b.weight": (32, 200)}
    places = locate_all(shapes | apart, shapes | apart)
    assert not [name for name, place in places.items() if place.role in OUTSIDE_BODY]


def test_modules_without_names():
    from torch import nn

    blocks = [nn.TransformerEncoderLayer(32, 4, 64) for _ in range(3)]
    found = roles_of(nn.Sequential(nn.Embedding(500, 32), *blocks, nn.Linear(32, 500)))
    assert (found["0.weight"], found["4.weight"], found["4.bias"]) == ("embedding", "head", "head")
    assert found["2.linear1.weight"] == "mlp in"


def test_a_long_name_takes_no_time():
    import time

    start = time.perf_counter()
    for part in ("a.", "attention.mlp.", "layers.1.", "emb_", "norm_"):
        locate(part * 500 + "weight")
    assert time.perf_counter() - start < 5
