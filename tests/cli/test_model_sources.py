"""What `saturate` and `homogeneity` can be pointed at: GGUF files, token ids, wrong paths, failing models."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch

from tests.cli.calling import call, call_json, normscope
from tests.network.saved_models import BUILD, TEXT, save_model

tf = pytest.importorskip("transformers")

QUICK = ("--no-baseline", "--no-heads", "--device", "cpu")


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def ids(tmp_path):
    np.save(tmp_path / "ids.npy", np.random.default_rng(0).integers(0, 16, (6, 9)))
    return tmp_path / "ids.npy"


# -- token ids ----------------------------------------------------------------------------


def test_ids_need_no_tokenizer_and_are_what_the_tokenizer_would_give(tmp_path):
    folder = save_model(tmp_path / "model")
    tokenizer = tf.AutoTokenizer.from_pretrained(folder)
    lines = tokenizer([line for line in TEXT.splitlines() if line])["input_ids"]
    (tmp_path / "ids.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "text.txt").write_text(TEXT)
    by_text = call_json("saturate", folder, "--text", tmp_path / "text.txt", *QUICK)
    for file in folder.glob("tokenizer*"):
        file.unlink()
    by_ids = call_json("saturate", folder, "--ids", tmp_path / "ids.jsonl", *QUICK)
    assert by_ids["layers"] == by_text["layers"]
    assert call("saturate", folder, "--text", tmp_path / "text.txt").code == 1
    degrees = call_json("homogeneity", folder, "--ids", tmp_path / "ids.jsonl", "--device", "cpu")["degrees"]
    assert degrees[-1]["module"] == "output"


def test_ids_are_part_of_what_a_step_depends_on(tmp_path, ids):
    folder = save_model(tmp_path / "model")
    run = ("--run", tmp_path / "run.db", *QUICK)
    first = call_json("saturate", folder, "--ids", ids, *run)
    assert call_json("saturate", folder, "--ids", ids, *run)["layers"] == first["layers"]
    np.save(ids, np.random.default_rng(1).integers(0, 16, (6, 9)))
    assert call_json("saturate", folder, "--ids", ids, *run)["layers"] != first["layers"]
    fewer = call_json("saturate", folder, "--ids", ids, "--sentences", 2, *run)
    assert fewer["layers"][0]["tokens"] == 18


def test_a_folder_of_the_lab_takes_ids(tmp_path, ids):
    from normscope.lab.model import ModelConfig, Transformer
    from normscope.lab.training.checkpointing import save_model as save_lab_model

    save_lab_model(Transformer(ModelConfig(d_model=8, n_heads=2, d_ff=8)), tmp_path / "step-000001")
    assert call_json("saturate", tmp_path / "step-000001", "--ids", ids, *QUICK)["layers"][0]["tokens"] == 54


def test_ids_that_have_no_effect_or_contradict_are_refused(tmp_path, ids):
    (tmp_path / "m.py").write_text("def build(): pass")
    done = call("saturate", f"{tmp_path}/m.py:build", "--ids", ids)
    assert done.code == 2 and "--ids has no effect with" in done.stderr
    (tmp_path / "text.txt").write_text(TEXT)
    done = call("saturate", tmp_path, "--ids", ids, "--text", tmp_path / "text.txt")
    assert done.code == 2 and "not both" in done.stderr
    folder = save_model(tmp_path / "model")
    np.save(ids, np.full((2, 3), 99))
    done = call("saturate", folder, "--ids", ids)
    assert done.code == 2 and "vocabulary of" in done.stderr


# -- GGUF ---------------------------------------------------------------------------------

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
PARTS = {
    **{"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"},
    **{"self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up"},
    **{"mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"},
}


def llama():
    torch.manual_seed(0)
    config = tf.LlamaConfig(vocab_size=32, num_key_value_heads=2, max_position_embeddings=64, **SIZES)
    return tf.LlamaForCausalLM(config)


def gguf_tensors(model):
    """llama.cpp's names, and its order of the rows of q and k: the halves of a rotary pair are neighbours."""
    outside = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    for name, value in model.state_dict().items():
        stem = name.removesuffix(".weight")
        if stem in outside:
            yield f"{outside[stem]}.weight", value.numpy()
            continue
        _, _, layer, part = stem.split(".", 3)
        heads = {"self_attn.q_proj": 4, "self_attn.k_proj": 2}.get(part)
        if heads:
            value = value.reshape(heads, 2, -1, value.shape[1]).swapaxes(1, 2).reshape(value.shape)
        yield f"blk.{layer}.{PARTS[part]}.weight", value.contiguous().numpy()


def write_gguf(path, model, architecture="llama", quantised=False, tokens=True):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, architecture)
    for add, value in (
        *((writer.add_block_count, 2), (writer.add_context_length, 64), (writer.add_embedding_length, 64)),
        *((writer.add_feed_forward_length, 96), (writer.add_head_count, 4), (writer.add_head_count_kv, 2)),
        *(
            (writer.add_layer_norm_rms_eps, 1e-6),
            (writer.add_rope_freq_base, 10000.0),
            (writer.add_vocab_size, 32),
        ),
    ):
        add(value)
    if tokens:
        writer.add_tokenizer_model("gpt2")
        digits = [str(digit) for digit in range(10)]
        writer.add_token_list(
            ["<unk>", "<s>", "</s>", "Ġ", "w", *digits, "Ġw", *(f"x{i}" for i in range(16))]
        )
        writer.add_token_merges(["Ġ w"])
        writer.add_token_types([2, 3, 3] + [1] * 29)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
    for name, array in gguf_tensors(model):
        kind = gguf.GGMLQuantizationType.Q8_0
        if quantised and array.ndim == 2:
            writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_is_the_model_it_was_made_of(tmp_path, ids):
    model = llama()
    model.save_pretrained(tmp_path / "folder")
    (tmp_path / "gguf").mkdir()
    file = write_gguf(tmp_path / "gguf" / "model.gguf", model)
    found = call_json("saturate", file, "--ids", ids, *QUICK)
    folder = call_json("saturate", tmp_path / "folder", "--ids", ids, *QUICK)
    expected = [row["cosine"] for row in folder["layers"]]
    assert [row["cosine"] for row in found["layers"]] == pytest.approx(expected, abs=1e-9)
    assert found["warnings"][0] == "the weights are read from GGUF"


def test_a_quantised_gguf_file_with_its_own_tokenizer(tmp_path):
    file = write_gguf(tmp_path / "model.gguf", llama(), quantised=True)
    (tmp_path / "text.txt").write_text("w1 w2 w3 w4\nw5 w66\n")
    done = call("saturate", file, "--text", tmp_path / "text.txt", *QUICK)
    assert "layers.1" in done.stdout and "dequantised from Q8_0" in done.stdout
    assert "GGUF tensors" not in done.stderr  # transformers' own progress bar


def test_gguf_files_that_cannot_be_loaded(tmp_path, ids):
    odd = write_gguf(tmp_path / "odd.gguf", llama(), architecture="nosuchkind")
    done = call("saturate", odd, "--ids", ids)
    assert done.code == 1 and "cannot load" in done.stderr and "nosuchkind is not supported" in done.stderr
    bare = write_gguf(tmp_path / "bare.gguf", llama(), tokens=False)
    done = call("saturate", bare)
    assert done.code == 1 and "cannot find a usable tokenizer in" in done.stderr and "--ids" in done.stderr


# -- paths that do not exist ----------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "checkpoints" / "step5").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)

    def asked(*arguments, **options):
        raise AssertionError("the hub was asked")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", asked)
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", asked)
    return tmp_path


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("./chekpoints/", "did you mean checkpoints?"),
        ("chekpoints", "did you mean checkpoints?"),
        ("chekpoints/step5", "did you mean checkpoints/step5?"),
        ("out/checkpoint-5", "so it is not a model"),
        ("models/foo.pt", "so it is not a model"),
        ("model.gguf", "so it is not a model"),
        ("a/b/c", "so it is not a model"),
        ("/nowhere/at/all", "so it is not a model"),
        ("weights.safetensors", "so it is not a model"),
    ],
)
@pytest.mark.parametrize("command", ["saturate", "homogeneity"])
def test_a_path_that_does_not_exist_is_said_without_asking_the_hub(command, source, words, here):
    done = call(command, source)
    assert done.code == 2 and f"{source} does not exist" in done.stderr and words in done.stderr


def test_a_path_that_does_not_exist_is_said_without_torch(tmp_path):
    (tmp_path / "m.py").write_text("def build(): pass")
    program = (
        "import sys; from normscope.cli.app import build\n"
        "try: build()(sys.argv[1:], standalone_mode=False)\n"
        "except Exception as error: print('torch' in sys.modules, error)\n"
    )
    import subprocess

    for words in (["saturate", "out/x.pt"], ["homogeneity", "./x"], ["saturate", "m.py:build", "ckpt/"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith("False ") and "does not exist" in done.stdout


def test_a_name_that_the_hub_does_not_know_is_no_path_either(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("saturate", "no-such-owner/no-such-model")
    assert done.code == 1 and "there is no folder no-such-owner/no-such-model here" in done.stderr


def test_names_of_the_hub_stay_names_of_the_hub(tmp_path, monkeypatch):
    from normscope.network.places.source_paths import is_hub_id

    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt3").mkdir()
    (tmp_path / "bert-base-uncased").mkdir()
    for name in ("gpt2", "bert-base-cased", "Qwen/Qwen2.5-0.5B", "owner/name@step1000", "t5-small"):
        assert is_hub_id(name)
    for name in ("gpt3", "x.pt", "./gpt2", "a/b/c", "out/model.bin", "bert-base-uncase"):
        assert not is_hub_id(name)


# -- models that fail -------------------------------------------------------------------------

FAILS = """
import torch
from torch import nn

class Broken(nn.Module):
    def __init__(self, scaled_only=False):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.scaled_only = scaled_only

    def forward(self, x):
        if self.scaled_only:
            assert self.stack.layers[0].linear1.weight.abs().max() < 100, "weights exploded"
            return self.stack(x)
        return self.stack(x) @ torch.ones(3, 3)

def build(): return Broken(), [torch.randn(2, 5, 8)]
def scaled(): return Broken(True), [torch.randn(2, 5, 8)]
"""


@pytest.mark.parametrize("command", ["saturate", "homogeneity"])
def test_a_forward_that_fails_is_blamed_on_the_model(command, tmp_path):
    (tmp_path / "m.py").write_text(FAILS)
    done = call(command, f"{tmp_path}/m.py:build")
    assert done.code == 1 and "the forward of Broken" in done.stderr and "m.py:build" in done.stderr
    assert "failed, called with (float32 [2, 5, 8]): RuntimeError: " in done.stderr
    assert "--debug" in done.stderr and "report it" not in done.stderr
    done = call(command, f"{tmp_path}/m.py:scaled")
    assert done.code == 1 and "fails when its parameters are scaled" in done.stderr
    assert "AssertionError: weights exploded" in done.stderr


def test_our_own_failure_is_not_blamed_on_the_model(tmp_path, monkeypatch):
    (tmp_path / "helper.py").write_text("width = 8\n")
    (tmp_path / "m.py").write_text(BUILD)

    def fails(*arguments, **options):
        return [][0]

    monkeypatch.setattr("normscope.network.study.saturation", fails)
    fails.__code__ = fails.__code__.replace(co_filename=str(sys.modules["normscope"].__file__))
    done = call("saturate", f"{tmp_path}/m.py:build", "--no-heads")
    assert "unexpected IndexError" in done.stderr and "report it" in done.stderr


def test_models_of_images_say_what_they_take(tmp_path, ids):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    tf.ViTModel(tf.ViTConfig(**sizes, image_size=8, patch_size=4)).save_pretrained(tmp_path / "vit")
    done = call("saturate", tmp_path / "vit", "--ids", ids)
    assert done.code == 1 and "ViTModel takes pixel_values, not text" in done.stderr
    text = {**sizes, "vocab_size": 20, "max_position_embeddings": 16, "eos_token_id": 2}
    config = tf.CLIPConfig(text_config=text, vision_config={**sizes, "image_size": 8, "patch_size": 4})
    tf.CLIPModel(config).save_pretrained(tmp_path / "clip")
    done = call("saturate", tmp_path / "clip", "--ids", ids)
    assert (
        done.code == 1 and "it also takes pixel_values" in done.stderr and "my_model.py:build" in done.stderr
    )


# -- the layers by a pattern --------------------------------------------------------------------


def test_help_names_the_new_options():
    for command in ("saturate", "homogeneity"):
        text = normscope(command, "--help").stdout
        assert "--ids" in text and "--blocks" in text
