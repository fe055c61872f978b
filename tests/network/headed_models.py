"""Pico models with output heads, built from configs, offline."""

from __future__ import annotations

import torch
from torch import nn

HEADED = ("gpt2", "bert", "llama", "t5", "classifier")


def headed(family: str, attention: str = "sdpa", seed: int = 0) -> nn.Module:
    """A two-layer model with an output head and random weights, in evaluation mode."""
    import transformers as tf

    common = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    wide = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    builders = {
        "gpt2": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(**common, n_embd=32, n_layer=2, n_head=4)),
        "bert": lambda: tf.BertForMaskedLM(tf.BertConfig(**common, **wide)),
        "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**common, **wide, num_key_value_heads=2)),
        "t5": lambda: tf.T5ForConditionalGeneration(
            tf.T5Config(**common, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
        ),
        "classifier": lambda: tf.BertForSequenceClassification(tf.BertConfig(**common, **wide, num_labels=3)),
    }
    torch.manual_seed(seed)
    model = builders[family]().eval()
    model.set_attn_implementation(attention)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(4)
    return model
