"""Old configs, name prefixes and stray buffers: the weights of the file are measured, or nothing is."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from normscope.errors import ModelError
from normscope.network.loading.pretrained import load_from_tensors, load_pretrained, load_tokenizer
from normscope.network.places.model_places import ModelPlace
from normscope.network.places.placement import Placement
from tests.network.saved_models import TEXT

tf = pytest.importorskip("transformers")

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
LLAMA = {**SIZES, "num_key_value_heads": 1, "max_position_embeddings": 32}


def bert(seed=0, **changes):
    torch.manual_seed(seed)
    return tf.BertForMaskedLM(tf.BertConfig(vocab_size=20, **{**SIZES, **changes}))


def save(folder, model, names=lambda name: name, extra=None, drop=(), old=(), binary=False):
    """The model as a folder, with other names, tensors and config fields than save_pretrained gives it."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value.clone() for name, value in model.state_dict().items() if name not in drop}
    state = {names(name): value.contiguous() for name, value in state.items()} | (extra or {})
    if binary:
        torch.save(state, folder / "pytorch_model.bin")
    else:
        save_file(state, folder / "model.safetensors", {"format": "pt"})
    config = json.loads(model.config.to_json_string(use_diff=False)) | {
        "architectures": [type(model).__name__]
    }
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k not in old}))
    return folder


UNNAMED = ("model_type", "architectures", "transformers_version")


def assert_same(loaded, model):
    """Every parameter that the base model shares with the saved one has its value."""
    stored = model.state_dict()
    prefix = f"{loaded.model.base_model_prefix}."
    compared = 0
    for name, value in loaded.model.named_parameters():
        key = name if name in stored else prefix + name
        if key in stored:
            assert torch.equal(value, stored[key]), name
            compared += 1
        else:
            assert "pooler" in name
    assert compared > 15


# -- configs that do not name their family ----------------------------------------------


def test_weights_of_a_lab_model_in_another_format_are_refused_with_the_reason(tmp_path):
    place = ModelPlace(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "normscope-lab", "d_model": 16}))
    with pytest.raises(
        ModelError, match=r"a model of the lab needs model\.safetensors beside its config\.json"
    ):
        load_from_tensors(place, {"embed.weight": torch.ones(4, 16)}, Placement())


@pytest.mark.parametrize("prefixed", [True, False])
def test_a_bert_of_2019(tmp_path, prefixed):
    """Only sizes in config.json, weights in pytorch_model.bin, a vocabulary and nothing else."""
    model, strip = bert(3), (lambda name: name if prefixed else name.removeprefix("bert."))
    folder = save(tmp_path / "old", model, strip, old=UNNAMED, binary=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set(TEXT.split()))]
    (folder / "vocab.txt").write_text("\n".join(words))
    loaded = load_pretrained(folder)
    assert type(loaded.model) is tf.BertModel
    assert_same(loaded, model)
    (said,) = (text for text in loaded.warnings if "model_type" in text)
    assert "taken for 'bert'" in said and ("roberta would fit as well" in said) is not prefixed
    found = load_tokenizer(folder).convert_ids_to_tokens(load_tokenizer(folder)("the cat")["input_ids"])
    assert found == ["[CLS]", "the", "cat", "[SEP]"]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("GPT2LMHeadModel", tf.GPT2Config(vocab_size=20, **GPT2)),
        ("LlamaForCausalLM", tf.LlamaConfig(vocab_size=20, **LLAMA)),
        ("RobertaForMaskedLM", tf.RobertaConfig(vocab_size=20, **SIZES, max_position_embeddings=34)),
        (
            "DistilBertForMaskedLM",
            tf.DistilBertConfig(vocab_size=20, dim=16, n_layers=2, n_heads=2, hidden_dim=24),
        ),
        ("GemmaForCausalLM", tf.GemmaConfig(vocab_size=20, **LLAMA, head_dim=8)),  # Llama's names and shapes
        ("Qwen2ForCausalLM", tf.Qwen2Config(vocab_size=20, **LLAMA)),  # Llama's, and biases
        ("BigBirdForMaskedLM", tf.BigBirdConfig(vocab_size=20, **SIZES)),  # BERT's, with another attention
        ("GPTNeoXForCausalLM", tf.GPTNeoXConfig(vocab_size=20, **SIZES)),
        ("T5ForConditionalGeneration", tf.T5Config(vocab_size=20, d_model=16, d_kv=8, d_ff=24, num_layers=1)),
    ],
)
def test_the_family_is_found_by_the_tensors_or_the_architecture(kind, settings, tmp_path):
    model = getattr(tf, kind)(settings)
    tied = [name for name in model.state_dict() if name.startswith(("lm_head", "vocab_proj"))]
    tied += [name for name in model.state_dict() if name.endswith("coder.embed_tokens.weight")]
    for number, old in enumerate((UNNAMED, ("model_type",))):
        loaded = load_pretrained(save(tmp_path / str(number), model, old=old, drop=tied))
        assert type(loaded.model) is tf.MODEL_MAPPING[type(settings)]
        assert loaded.model.config.model_type == settings.model_type
        assert_same(loaded, model)
        assert f"taken for {settings.model_type!r}" in loaded.warnings[0]


def test_the_measurement_is_that_of_the_named_config(tmp_path):
    model = bert(5)
    named = load_pretrained(save(tmp_path / "named", model)).model
    old = load_pretrained(save(tmp_path / "old", model, lambda name: f"module.{name}", old=UNNAMED)).model
    ids = torch.arange(10)[None]
    with torch.no_grad():
        assert torch.equal(named(ids).last_hidden_state, old(ids).last_hidden_state)


def test_tensors_of_no_known_family_are_refused(tmp_path):
    folder = save(tmp_path / "odd", bert(), lambda name: name.replace("query", "asks"), old=UNNAMED)
    with pytest.raises(ModelError, match="no model_type, and the tensors are those of no family"):
        load_pretrained(folder)


# -- names ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prefix", ["module.", "_orig_mod.", "model.", "net.student_net.", "module._orig_mod."]
)
@pytest.mark.parametrize("binary", [True, False])
def test_any_prefix_is_removed_with_a_word(prefix, binary, tmp_path):
    model = bert(1)
    loaded = load_pretrained(save(tmp_path / "m", model, lambda name: prefix + name, binary=binary))
    assert_same(loaded, model)
    assert any(f"begin with '{prefix}bert.', which was removed" in text for text in loaded.warnings)


def test_a_prefix_of_a_decoder(tmp_path):
    model = tf.LlamaForCausalLM(tf.LlamaConfig(vocab_size=20, **LLAMA))
    loaded = load_pretrained(save(tmp_path / "m", model, lambda name: f"_orig_mod.{name}"))
    assert_same(loaded, model)


def test_two_networks_under_two_prefixes_are_refused(tmp_path):
    first = bert(1)
    second = {f"teacher.{name}": value.clone() for name, value in bert(2).state_dict().items()}
    folder = save(tmp_path / "m", first, lambda name: f"student.{name}", second)
    with pytest.raises(
        ModelError, match=r"two networks of this kind, under 'student.bert.' and 'teacher.bert.'"
    ):
        load_pretrained(folder)


def test_a_checkpoint_saved_with_its_trainer(tmp_path):
    model = bert(1)
    folder = save(tmp_path / "m", model, binary=True)
    state = {"module." + name: value for name, value in model.state_dict().items()}
    torch.save({"state_dict": state, "epoch": 3, "args": {"lr": 0.1}}, folder / "pytorch_model.bin")
    assert_same(load_pretrained(folder), model)


def test_the_head_that_is_left_out_is_named(tmp_path):
    loaded = load_pretrained(save(tmp_path / "m", bert()))
    assert "the checkpoint's head (cls) is left out: hidden states are measured" in loaded.warnings
    assert any(
        "lacks pooler.dense.bias, pooler.dense.weight: random values" in text for text in loaded.warnings
    )


# -- what is missing, or too much -------------------------------------------------------

BODY = [name for name in bert().state_dict() if name.startswith("bert.")]


@pytest.mark.parametrize("name", BODY[::5])
def test_no_parameter_of_the_body_may_be_missing(name, tmp_path):
    with pytest.raises(ModelError, match=f"lacks {name.removeprefix('bert.')}"):
        load_pretrained(save(tmp_path / "m", bert(), drop=(name,)))


def test_a_config_of_another_size_is_refused(tmp_path):
    folder = save(tmp_path / "m", bert())
    for change, message in (
        ({"num_hidden_layers": 1}, r"more layers than the model .* no encoder.layer.1"),
        ({"num_hidden_layers": 3}, "lacks encoder.layer.2"),
        ({"intermediate_size": 25}, r"has the shape \[.*24.*\] in the checkpoint and \[.*25"),
    ):
        other = tmp_path / "other"
        shutil.copytree(folder, other, dirs_exist_ok=True)
        config = json.loads((folder / "config.json").read_text()) | change
        (other / "config.json").write_text(json.dumps(config))
        with pytest.raises(ModelError, match=message):
            load_pretrained(other)


def test_unknown_tensors_inside_a_layer_are_named(tmp_path):
    extra = {"bert.encoder.layer.0.adapter.weight": torch.ones(4, 4)}
    loaded = load_pretrained(save(tmp_path / "m", bert(), extra=extra))
    assert "has no place for" in loaded.warnings[0] and "encoder.layer.0.adapter.weight" in loaded.warnings[0]


def test_buffers_of_older_versions_are_said_and_not_used(tmp_path):
    gpt2 = tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=20, **GPT2))
    extra = {
        "transformer.h.0.attn.masked_bias": torch.tensor(-1e4),
        "transformer.h.0.attn.bias": torch.ones(1, 1, 4, 4),
    }
    loaded = load_pretrained(save(tmp_path / "gpt2", gpt2, extra=extra, drop=("lm_head.weight",)))
    assert_same(loaded, gpt2)
    assert any("buffers are not used" in text and "masked_bias" in text for text in loaded.warnings)
    llama = tf.LlamaForCausalLM(tf.LlamaConfig(vocab_size=20, **LLAMA))
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    loaded = load_pretrained(save(tmp_path / "llama", llama, extra=extra))
    assert_same(loaded, llama)
    assert not any("no place for" in text for text in loaded.warnings)


def test_a_model_that_takes_no_text_is_said(tmp_path):
    from normscope.network.loading.pretrained import check_model

    tf.ViTModel(tf.ViTConfig(**SIZES, image_size=8, patch_size=4)).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"ViTModel takes pixel_values, not text.*my_model.py:build"):
        check_model(tmp_path)


# -- modules that register buffers in their first forward -------------------------------


class Lazy(nn.Module):
    """A mask and a table that exist only after the first forward, and one buffer that is None until then."""

    def __init__(self, length=None):
        super().__init__()
        self.mix = nn.Linear(4, 4)
        self.register_buffer("seen", None)
        self.length = length

    def forward(self, x):
        if not hasattr(self, "tril_cache"):
            size = self.length or x.shape[1]
            self.register_buffer("tril_cache", torch.ones(size, size).tril())
            self.register_buffer("offset", torch.zeros(4))
            self.seen = torch.ones(1)
        return self.tril_cache[: x.shape[1], : x.shape[1]] @ self.mix(x) + self.offset


def stored(module, tmp_path):
    from normscope.checkpoints import open_series

    torch.save(module.state_dict(), tmp_path / "step1.pt")
    return open_series(tmp_path / "step1.pt").entries[0].open()


def test_lazy_buffers_are_loaded_with_a_word(tmp_path):
    from normscope.network.loading.module_weights import load_weights

    x, trained, fresh = torch.randn(2, 5, 4), Lazy(), Lazy()
    trained(x)
    trained.offset += 7
    words = load_weights(fresh, stored(trained, tmp_path), "step1.pt", lambda: fresh(x))
    assert torch.equal(fresh(x), trained(x))
    assert "first forward pass" in words[0] and "offset" in words[0]


def test_a_lazy_table_for_another_length_stays_the_models_own(tmp_path):
    from normscope.network.loading.module_weights import load_weights

    x, trained, fresh = torch.randn(2, 5, 4), Lazy(9), Lazy()
    trained(x)
    words = load_weights(fresh, stored(trained, tmp_path), "step1.pt", lambda: fresh(x))
    assert torch.equal(fresh(x), trained(x))
    assert "the model computes its own: tril_cache" in words[-1]


def test_lazy_parameters_are_made_before_they_are_loaded(tmp_path):
    from normscope.network.loading.module_weights import load_weights

    x, trained, fresh = torch.randn(2, 5), nn.Sequential(nn.LazyLinear(3)), nn.Sequential(nn.LazyLinear(3))
    trained(x)
    load_weights(fresh, stored(trained, tmp_path), "step1.pt", lambda: fresh(x))
    assert torch.equal(fresh(x), trained(x))


def test_a_parameter_that_the_model_lacks_is_still_refused(tmp_path):
    from normscope.network.loading.module_weights import load_weights

    x, fresh, other = torch.randn(2, 5, 4), Lazy(), Lazy()
    other.more = nn.Linear(4, 4)
    with pytest.raises(ModelError, match="has no more.bias, more.weight"):
        load_weights(fresh, stored(other, tmp_path), "step1.pt", lambda: fresh(x))
