"""Largest logit and entropy of every head, live, against attention written out in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normscope as ns
from normscope.lab.model import ModelConfig, Transformer
from tests.live import attention_references as references
from tests.network.models import HandWritten, hugging_face, token_batch


def live_numbers(model: nn.Module, batch: Any, folder: Path, source: str) -> references.Numbers:
    """What a monitor records of the first step, which the model makes on the same batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options: Any = {"attention": "observe"} if source == "training" else {}
    if source == "probe":
        options = {"network": ns.at_steps([0]), "batch": batch}
    monitor = ns.Monitor(model, optimizer, folder / "run.db", ns.every(1), **options)
    model.train()
    out = model(**batch) if isinstance(batch, dict) else model(batch)
    (out if isinstance(out, Tensor) else out.last_hidden_state).square().mean().backward()
    optimizer.step()
    assert monitor.close()
    with ns.Run(folder / "run.db") as run:
        rows = [ns.AttentionRow(**row) for row in run.table(ns.AttentionRow)]
    assert {(row.source, row.step) for row in rows} == {(source, 0 if source == "probe" else 1)}
    for row in rows:
        assert row.layer == 1 + next(int(part) for part in row.module.split(".") if part.isdigit())
    return {(row.module, row.head): (row.logit, row.entropy, row.relative_entropy) for row in rows}


def compare(found: references.Numbers, expected: references.Numbers) -> None:
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key] == pytest.approx(values, rel=2e-4, abs=2e-5), key


@pytest.mark.parametrize("source", ["probe", "training"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "bert", "t5"])
def test_of_families(family: str, attention: str, source: str, tmp_path: Path) -> None:
    model = references.without_dropout(hugging_face(family, attention))
    batch = token_batch(family)
    reference = {
        "gpt2": references.of_gpt2,
        "llama": references.of_llama,
        "bert": references.of_bert,
        "t5": references.of_t5,
    }[family]
    expected = reference(hugging_face(family, "eager"), batch)
    compare(live_numbers(model, batch, tmp_path, source), expected)


@pytest.mark.parametrize("source", ["probe", "training"])
@pytest.mark.parametrize("mask", ["fill", "finite"])
def test_of_a_written_softmax(mask: str, source: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = HandWritten(mask)
    tokens = torch.randint(0, 50, (3, 9))
    compare(live_numbers(model, tokens, tmp_path, source), references.of_hand_written(model, tokens))


@pytest.mark.parametrize("source", ["probe", "training"])
def test_of_the_labs_model(source: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Transformer(ModelConfig(vocab_size=50, d_model=16, n_heads=2, n_layers=2))
    for parameter in model.parameters():
        parameter.data.mul_(5)
    tokens = torch.randint(0, 50, (3, 9))
    expected = references.of_lab(model, tokens)
    compare(live_numbers(model, tokens, tmp_path, source), expected)
