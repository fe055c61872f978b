"""Small models as people save them, and a program that builds one."""

from __future__ import annotations

import torch

TEXT = """the cat sat on the mat
a dog ran over the hill and the cat saw it

the hill is old
it sat on a mat and saw the dog
"""

BUILD = """
import torch
from helper import width
from torch import nn

def build():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), [torch.randn(2, 5, width)]

def wrong():
    return 3

def linear():
    return nn.Linear(4, 4), [torch.randn(2, 4)]

def leaky():
    return Leaky(), [torch.arange(12).reshape(2, 6)]

class Leaky(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.mix = nn.Embedding(12, 8), nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.register_buffer("tril", torch.ones(6, 6).tril())

    def forward(self, ids):
        x = self.embed(ids)
        q, k, v = (layer(x)[:, None] for layer in self.mix)
        return x + ((q @ k.transpose(-1, -2) * self.tril).softmax(-1) @ v)[:, 0]
"""


def save_model(folder, seed=0, family="bert", **config):
    """A pico model with a word-level tokenizer, as save_pretrained leaves them."""
    import transformers as tf
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = sorted(set(TEXT.split()))
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *words])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = tf.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]")
    torch.manual_seed(seed)
    if family == "bert":
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
        model = tf.BertModel(
            tf.BertConfig(vocab_size=len(vocabulary), **{**sizes, **config}), add_pooling_layer=False
        )
    else:
        sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
        model = tf.T5ForConditionalGeneration(
            tf.T5Config(vocab_size=len(vocabulary), **sizes, decoder_start_token_id=0)
        )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
