"""--task and --ablate on saved models: the head is loaded, what is measured by default stays the same."""

from __future__ import annotations

import pytest
import torch

import normscope as ns
from normscope.cli.predictions import SHOWN, print_predictions
from normscope.network.loading.output_heads import load_with_head, with_masked_tokens
from normscope.network.loading.pretrained import load_tokenizer
from normscope.network.places.model_places import ModelPlace
from normscope.network.places.placement import Placement
from normscope.network.running.inputs import corpus
from tests.cli.calling import call, call_json
from tests.network.saved_models import TEXT, save_model

transformers = pytest.importorskip("transformers")

SENTENCES = [line for line in TEXT.splitlines() if line]
CPU = Placement("cpu")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def causal(tmp_path):
    """GPT-2 with its head, and the tokenizer of the other saved models."""
    folder = save_model(tmp_path / "gpt2")
    torch.manual_seed(0)
    words = {"vocab_size": 40, "n_positions": 32, "bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(**words, n_embd=16, n_layer=2, n_head=2)
    (folder / "model.safetensors").unlink()
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def masked(tmp_path):
    """BERT with its head, and a tokenizer with a mask token."""
    folder = save_model(tmp_path / "bert")
    tokenizer = load_tokenizer(folder)
    tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=len(tokenizer), **sizes))
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder)
    return folder


def test_the_head_is_loaded_for_predictions_only(causal, text, tmp_path):
    plain = call_json("saturate", causal, "--text", text)
    assert not {"tasks", "ablations"} & set(plain)
    run = tmp_path / "run.db"
    found = call_json("saturate", causal, "--text", text, "--task", "--ablate", "mean,zero", "--run", run)
    assert {name: found[name] for name in ("layers", "heads", "look_ahead", "warnings")} == {
        name: plain[name] for name in ("layers", "heads", "look_ahead", "warnings")
    }
    (task,), (ablated,) = found["tasks"], found["ablations"]
    assert task["task"] == ablated["task"] == "next-token" and task["sentences"] == 4
    assert {head["kind"] for head in ablated["heads"]} == {"mean", "zero"} and len(ablated["heads"]) == 8
    model = transformers.GPT2LMHeadModel.from_pretrained(causal)
    made = corpus(SENTENCES, load_tokenizer(causal), model)
    assert task["networks"][0]["loss"] == ns.saturated_task(model, made.batches)["model"].loss
    again = call_json("saturate", causal, "--text", text, "--task", "--ablate", "mean,zero", "--run", run)
    assert again == found


def test_a_masked_language_model_is_asked_for_masked_tokens(masked, text):
    found = call_json("saturate", masked, "--text", text, "--task")
    (task,) = found["tasks"]
    tokens = sum(len(line.split()) for line in SENTENCES)
    assert task["task"] == "tokens" and 4 <= task["positions"] < 0.5 * tokens
    assert not [text for text in found["warnings"] if "head (cls)" not in text and "pooler" not in text]


def test_masks_are_the_same_every_time_and_never_special_tokens(masked):
    model, tokenizer = load_with_head(ModelPlace(str(masked)), CPU).model, load_tokenizer(masked)
    plain = corpus(SENTENCES * 10, tokenizer, model)
    first, second = (with_masked_tokens(plain, tokenizer, model) for _ in range(2))
    counts = 0
    for one, other, before in zip(first.batches, second.batches, plain.batches, strict=True):
        assert torch.equal(one.kwargs["input_ids"], other.kwargs["input_ids"])
        chosen = one.labels != -100
        assert bool((one.kwargs["input_ids"][chosen] == tokenizer.mask_token_id).all())
        assert torch.equal(one.labels[chosen], before.kwargs["input_ids"][chosen])
        assert bool(chosen.any(-1).all()) and not bool((chosen & ~before.mask).any())
        rest = one.kwargs["input_ids"][~chosen]
        assert torch.equal(rest, before.kwargs["input_ids"][~chosen])
        counts += int(chosen.sum())
    assert 0.1 < counts / sum(int(batch.mask.sum()) for batch in plain.batches) < 0.35


def test_a_head_that_the_files_lack_is_not_made_up(causal, text):
    config = transformers.AutoConfig.from_pretrained(causal)
    config.architectures, config.tie_word_embeddings = ["GPT2LMHeadModel"], False
    model = transformers.GPT2Model(config)
    (causal / "model.safetensors").unlink()
    model.save_pretrained(causal)
    config.architectures = ["GPT2LMHeadModel"]
    config.save_pretrained(causal)
    found = call_json("saturate", causal, "--text", text, "--task")
    assert found["tasks"][0]["task"] == "states"
    assert any("measured without an output head: the checkpoint lacks" in note for note in found["warnings"])


def test_weights_of_other_formats_have_no_head_yet_and_that_is_said(causal, text):
    tensors = transformers.GPT2Model.from_pretrained(causal).state_dict()
    (causal / "model.safetensors").unlink()
    torch.save(tensors, causal / "step_10.pt")
    found = call_json("saturate", causal / "step_10.pt", "--text", text, "--task")
    assert found["tasks"][0]["task"] == "states"
    assert any("measured without an output head" in note for note in found["warnings"])


def test_a_model_that_never_had_a_head_is_compared_by_its_states(tmp_path, text):
    found = call_json("saturate", save_model(tmp_path / "bert"), "--text", text, "--task", "--ablate", "zero")
    assert found["tasks"][0]["task"] == "states" and all("pooler" in text for text in found["warnings"])
    assert all(head["moved"] > 0 for head in found["ablations"][0]["heads"])


def test_the_tables_that_are_printed(causal, text):
    shown = call("saturate", causal, "--text", text, "--task", "--ablate", "all").stdout
    assert "the task (next-token" in shown and "agreement" in shown
    assert "4 heads replaced; those that matter most" in shown and "divergence" in shown


@pytest.mark.parametrize(("task", "column"), [("states", "moved"), ("next-token", "divergence")])
def test_the_heads_that_matter_most_are_printed_first(capsys, task, column):
    names = ("moved", "turned", "divergence", "changed", "loss_change", "loss_change_error")
    changes = [0.25, None, 0.125, 0.5, *[0.01] * SHOWN]
    same = {"module": "h", "kind": "zero", "layer": 7, **dict.fromkeys(names, 9.0)}
    heads = [{**same, "head": 20 + i, column: change} for i, change in enumerate(changes)]
    print_predictions([], [{"task": task, "loss": 1.0, "heads": heads}])
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if " 7 " in line]
    assert [int(line[2]) for line in lines[:3]] == [23, 20, 22] and len(lines) == SHOWN
    assert all(int(line[2]) != 21 for line in lines)


def test_wrong_kinds_are_refused(causal, text):
    shown = call("saturate", causal, "--text", text, "--ablate", "mean,half")
    assert shown.code == 2
    assert "--ablate takes some of saturated,mean,zero, or all; got 'half'" in shown.stderr
