"""The attention that a report shows: which tokens its rows and columns are."""

from __future__ import annotations

import pytest
import torch

from normscope.network.measuring.attention_examples import attention_examples
from normscope.network.measuring.heads import heads
from normscope.network.running.batches import as_batch
from tests.network.models import hugging_face

pytest.importorskip("transformers")


def test_a_decoder_has_its_own_tokens_and_cross_attention_those_of_the_encoder():
    ids = torch.tensor([[5, 6, 7, 8]])
    shifted = torch.tensor([[0, 5, 6, 7]])
    batch = as_batch({"input_ids": ids, "attention_mask": torch.ones_like(ids), "decoder_input_ids": shifted})
    model = hugging_face("t5")
    shown = attention_examples(model, batch, ["a", "b", "c", "d"], heads(model, batch))
    kinds = {"encoder": ("abcd", "abcd"), "SelfAttention": (["0", *"abc"], ["0", *"abc"])}
    kinds["EncDecAttention"] = (["0", *"abc"], "abcd")
    for example in shown:
        key = "encoder" if example.module.startswith("encoder") else example.module.rpartition(".")[2]
        queries, keys = kinds[key]
        assert example.tokens == tuple(queries) and example.key_tokens == tuple(keys), example.module
        assert ("key_tokens" in example.document()) is (queries != keys)


def test_one_stream_has_the_tokens_of_the_sentence():
    ids = torch.tensor([[5, 6, 5, 8]])
    model, batch = hugging_face("gpt2"), as_batch({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    for example in attention_examples(model, batch, ["a", "b", "a", "d"], heads(model, batch)):
        assert example.tokens == ("a", "b", "a", "d") and "key_tokens" not in example.document()
        assert all(sum(row) == pytest.approx(1, abs=1e-3) for row in (*example.soft, *example.saturated))
