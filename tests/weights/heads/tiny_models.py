"""Tiny models of many families, with random gains and biases, and the attention logits they compute."""

import torch
import transformers as hf

SIZES = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDE = SIZES | {"intermediate_size": 48, "max_position_embeddings": 64}
ENDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}


def configs():
    """Name → the config of a model that states the logits of every head."""
    return {
        "gpt2": hf.GPT2Config(n_layer=2, n_head=4, n_embd=32, vocab_size=40, n_positions=64, **ENDS),
        "bigcode": hf.GPTBigCodeConfig(n_layer=2, n_head=4, n_embd=32, vocab_size=40, n_positions=64, **ENDS),
        "bigcode-many": hf.GPTBigCodeConfig(
            n_layer=2, n_head=4, n_embd=32, vocab_size=40, n_positions=64, multi_query=False, **ENDS
        ),
        "gpt-neo": hf.GPTNeoConfig(
            **SIZES, num_layers=2, num_heads=4, attention_types=[[["global"], 2]], max_position_embeddings=64,
            intermediate_size=48, **ENDS,
        ),
        "neox": hf.GPTNeoXConfig(**WIDE, rotary_pct=0.5, **ENDS),
        "llama": hf.LlamaConfig(**WIDE, num_key_value_heads=2, attention_bias=True, **ENDS),
        "qwen2": hf.Qwen2Config(**WIDE, num_key_value_heads=2, **ENDS),
        "qwen3": hf.Qwen3Config(**WIDE, num_key_value_heads=2, head_dim=16, **ENDS),
        "olmo2": hf.Olmo2Config(**WIDE, num_key_value_heads=2, **ENDS),
        "gemma": hf.GemmaConfig(**WIDE, num_key_value_heads=1, head_dim=8, **ENDS),
        "gemma3": hf.Gemma3TextConfig(
            **WIDE, num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=5, **ENDS
        ),
        "gemma2": hf.Gemma2Config(
            **WIDE, num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=5, attn_logit_softcapping=None,
            **ENDS,
        ),
        "gptj": hf.GPTJConfig(
            n_layer=2, n_head=4, n_embd=32, vocab_size=40, n_positions=64, rotary_dim=4, **ENDS
        ),
        "mistral": hf.MistralConfig(**WIDE, num_key_value_heads=2, **ENDS),
        "mixtral": hf.MixtralConfig(**WIDE, num_key_value_heads=2, num_local_experts=2, **ENDS),
        "qwen2-moe": hf.Qwen2MoeConfig(
            **WIDE, num_key_value_heads=2, num_experts=2, num_experts_per_tok=1, moe_intermediate_size=16,
            shared_expert_intermediate_size=16, **ENDS,
        ),
        "qwen3-moe": hf.Qwen3MoeConfig(
            **WIDE, num_key_value_heads=2, head_dim=8, num_experts=2, num_experts_per_tok=1,
            moe_intermediate_size=16, **ENDS,
        ),
        "persimmon": hf.PersimmonConfig(**WIDE, qk_layernorm=False, **ENDS),
        "mpt": hf.MptConfig(d_model=32, n_heads=4, n_layers=2, max_seq_len=64, vocab_size=40, **ENDS),
        "modernbert": hf.ModernBertConfig(
            **WIDE, cls_token_id=0, sep_token_id=1, pad_token_id=2, bos_token_id=0, eos_token_id=1
        ),
        "phi": hf.PhiConfig(**WIDE, partial_rotary_factor=0.5, **ENDS),
        "phi3": hf.Phi3Config(**WIDE, num_key_value_heads=2, **ENDS),
        "bloom": hf.BloomConfig(vocab_size=40, hidden_size=32, n_layer=2, n_head=4, **ENDS),
        "falcon": hf.FalconConfig(**SIZES, new_decoder_architecture=True, num_kv_heads=2, **ENDS),
        "falcon-one": hf.FalconConfig(**SIZES, multi_query=True, **ENDS),
        "falcon-many": hf.FalconConfig(**SIZES, multi_query=False, alibi=True, **ENDS),
        "opt": hf.OPTConfig(**SIZES, ffn_dim=48, max_position_embeddings=64, word_embed_proj_dim=32, **ENDS),
        "starcoder2": hf.Starcoder2Config(**WIDE, num_key_value_heads=2, **ENDS),
        "stablelm": hf.StableLmConfig(**WIDE, num_key_value_heads=2, **ENDS),
        "granite": hf.GraniteConfig(**WIDE, num_key_value_heads=2, attention_multiplier=0.3, **ENDS),
        "cohere": hf.CohereConfig(**WIDE, num_key_value_heads=2, use_qk_norm=True, **ENDS),
        "bert": hf.BertConfig(**WIDE),
        "roberta": hf.RobertaConfig(**WIDE, **ENDS),
        "distilbert": hf.DistilBertConfig(
            vocab_size=40, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=64
        ),
        "t5": hf.T5Config(vocab_size=40, d_model=32, d_kv=12, d_ff=48, num_layers=2, num_heads=4, **ENDS),
    }  # fmt: skip


def build(config, seed=0, size=1.0):
    """A model whose weights, gains and biases are random and not small."""
    torch.manual_seed(seed)
    config._attn_implementation = "eager"
    model = hf.T5EncoderModel(config) if config.model_type == "t5" else hf.AutoModel.from_config(config)
    with torch.no_grad():
        for name, value in model.named_parameters():
            spread = size if value.dim() > 1 else 0.5
            value += spread * torch.randn_like(value) / (value.shape[-1] ** 0.5 if value.dim() > 1 else 1)
            if "relative_attention_bias" in name:
                value.zero_()  # it is added to the logits
    return model.eval()


class Logits:
    """While it is open, collects what every softmax over keys is given: [batch, heads, queries, keys]."""

    def __init__(self, monkeypatch):
        self.seen = []
        for place in (torch, torch.Tensor):
            monkeypatch.setattr(place, "softmax", self._watching(place.softmax))

    def _watching(self, original):
        def softmax(values, *args, **kwargs):
            if values.dim() == 4:
                self.seen.append(values.detach().double())
            return original(values, *args, **kwargs)

        return softmax


def calls_of(model, names):
    """The inputs and outputs of the modules of these names, as they are called: a dict that fills itself."""
    seen = {}
    for name in names:
        module = model.get_submodule(name)
        module.register_forward_hook(
            lambda _, given, found, name=name: seen.__setitem__(name, (given[0].double(), found.double()))
        )
    return seen
