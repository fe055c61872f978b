"""Transformers as people write them by hand, and torch's own, each with a formula for its attention maps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

from benchmarks.architecture_case import ArchitectureCase, grown, token_inputs
from tests.network.structures import WIDTH, Attention, Block, Head, HeadList, ListBlocks, Stack, split_heads

Builder = Callable[[str, int], ArchitectureCase]


def ids(repeated: bool = False) -> Tensor:
    """Token ids without padding; `repeated` ones tie in a network without positions."""
    generator = torch.Generator().manual_seed(2)
    return torch.randint(3, 6 if repeated else 50, (4, 9), generator=generator)


def own_maps(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Tensor:
    """The maps of the tests' attention, from its inputs."""
    return module.maps(*args, **kwargs)


def one_head(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Tensor:
    """The map of a module that is one head."""
    scores = module.query(args[0]) @ module.key(args[0]).mT / math.sqrt(WIDTH // 4)
    return scores.softmax(-1)[:, None]


def multi_head(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Tensor:
    """The maps of nn.MultiheadAttention, from its inputs and its matrices."""
    query, key = args[:2] if len(args) > 1 else (args[0], kwargs["key"])
    if not module.batch_first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    weights, biases = module.in_proj_weight.chunk(3), module.in_proj_bias.chunk(3)
    heads = module.num_heads
    q = split_heads(query @ weights[0].T + biases[0], heads)
    k = split_heads(key @ weights[1].T + biases[1], heads)
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    padding, mask = kwargs.get("key_padding_mask"), kwargs.get("attn_mask")
    if mask is not None:
        scores = scores + mask
    if padding is not None:
        hidden = padding if padding.dtype == torch.bool else padding < 0
        scores = scores.masked_fill(hidden[:, None, None], -torch.inf)
    return scores.softmax(-1)


def stack(kind: str, *, seen: bool = True, repeated: bool = False, note: str = "") -> Builder:
    """Blocks around an attention that is written in one of many ways."""

    def build(name: str, seed: int) -> ArchitectureCase:
        torch.manual_seed(seed)
        model = grown(Stack(*(Block(Attention(kind)) for _ in range(3))), 2.0)
        attention = ("layers.*.attn",) if seen else ()
        return ArchitectureCase(name, model, ids(repeated), ("layers.*",), attention, own_maps, note)

    return build


def list_blocks(kind: str) -> Builder:
    """Blocks that are lists and are never called; the model adds the residuals."""

    def build(name: str, seed: int) -> ArchitectureCase:
        torch.manual_seed(seed)
        model = grown(ListBlocks(kind), 2.0)
        place = {"prenorm": "layers.*.0.fn", "norms": "layers.*.1", "dict": "layers.*.attn"}[kind]

        def states(copy: nn.Module) -> dict[str, Tensor]:
            return dict(zip(("layers.input", "layers.0", "layers.1", "layers.2"), copy.seen, strict=True))

        return ArchitectureCase(name, model, ids(), (), (place,), own_maps, states=states)

    return build


def head_list(name: str, seed: int) -> ArchitectureCase:
    """Every head is a module."""
    torch.manual_seed(seed)
    model = grown(Stack(*(Block(HeadList()) for _ in range(2))), 2.0)

    def maps(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Tensor:
        parts = [one_head(head, args, kwargs, output) for head in module.heads if isinstance(head, Head)]
        return torch.cat(parts, 1)

    return ArchitectureCase(name, model, ids(), ("layers.*",), ("layers.*.attn",), maps)


def torch_encoder(batch_first: bool) -> Builder:
    """nn.TransformerEncoder with padding."""

    def build(name: str, seed: int) -> ArchitectureCase:
        torch.manual_seed(seed)
        layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=batch_first)
        model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.3)
        states = torch.randn(4, 9, 32)
        mask = token_inputs()["attention_mask"]
        inputs = {"src": states if batch_first else states.transpose(0, 1), "src_key_padding_mask": mask == 0}
        return ArchitectureCase(
            name, model, inputs, ("layers.*",), ("layers.*.self_attn",), multi_head, mask=mask
        )

    return build


def torch_transformer(batch_first: bool) -> Builder:
    """nn.Transformer: encoder, decoder and cross-attention."""

    def build(name: str, seed: int) -> ArchitectureCase:
        torch.manual_seed(seed)
        model = nn.Transformer(32, 4, 2, 2, 48, batch_first=batch_first)
        source, target = torch.randn(4, 9, 32), torch.randn(4, 6, 32)
        inputs = (source, target) if batch_first else (source.transpose(0, 1), target.transpose(0, 1))
        places = (
            "encoder.layers.*.self_attn",
            "decoder.layers.*.self_attn",
            "decoder.layers.*.multihead_attn",
        )
        return ArchitectureCase(
            name, model, inputs, ("encoder.layers.*", "decoder.layers.*"), places, multi_head
        )

    return build


class FlexAttention(Attention):
    """Attention by torch's flex kernel, whose scores nobody sees."""

    def _flex(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, scale=1.0).transpose(1, 2).flatten(2)


def flex(name: str, seed: int) -> ArchitectureCase:
    torch.manual_seed(seed)
    model = grown(Stack(*(Block(FlexAttention("flex")) for _ in range(2))), 2.0)
    return ArchitectureCase(name, model, ids(), ("layers.*",))


def compiled(name: str, seed: int) -> ArchitectureCase:
    case = stack("softmax")(name, seed)
    return case.with_model(torch.compile(case.model))


def narrow(dtype: torch.dtype) -> Builder:
    """Weights of 16 bits."""

    def build(name: str, seed: int) -> ArchitectureCase:
        case = stack("softmax")(name, seed)
        return case.with_model(case.model.to(dtype))

    return build


def tiny_queries(name: str, seed: int) -> ArchitectureCase:
    """Queries and keys as a very large weight decay leaves them."""
    case = stack("softmax")(name, seed)
    with torch.no_grad():
        for path, parameter in case.model.named_parameters():
            if path.endswith(("attn.q.weight", "attn.k.weight", "attn.q.bias", "attn.k.bias")):
                parameter.mul_(1e-7)
    return case


class Broken(nn.Module):
    """The second of three blocks gives NaN."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * math.nan


def gives_nan(name: str, seed: int) -> ArchitectureCase:
    torch.manual_seed(seed)
    blocks = [Block(Attention()), Block(Attention()), Block(Broken(Attention()))]
    model = grown(Stack(*blocks), 2.0)
    places = ("layers.0.attn", "layers.1.attn", "layers.2.attn.inner")
    says = ("itself, unscaled, already gives NaN", "layers.2")
    return ArchitectureCase(name, model, ids(), ("layers.*",), places, own_maps, says=says)


HAND_WRITTEN: dict[str, Builder] = {
    "nn.TransformerEncoder": torch_encoder(True),
    "nn.TransformerEncoder, sequence first": torch_encoder(False),
    "nn.Transformer": torch_transformer(True),
    "nn.Transformer, sequence first": torch_transformer(False),
    "blocks are lists of lists": list_blocks("prenorm"),
    "blocks are lists with norms": list_blocks("norms"),
    "blocks are dicts": list_blocks("dict"),
    "heads are modules": head_list,
    "a loop over heads": stack("loop"),
    "softmax laid out [b, i, j, h]": stack("heads_last"),
    "softmax over the first axis of [j, i]": stack("keys_first"),
    "heads folded into the batch": stack("folded"),
    "log_softmax().exp()": stack("log_softmax"),
    "exp divided by its sum": stack("exp_sum"),
    "exp with a mask multiplied in": stack("masked_exp"),
    "no positions, repeated tokens": stack("softmax", repeated=True),
    "linear attention": stack("linear", seen=False),
    "weights never computed, (e·v)/Σe": stack("after_sum", seen=False),
    "flex_attention": flex,
    "torch.compile": compiled,
    "float16 weights": narrow(torch.float16),
    "bfloat16 weights": narrow(torch.bfloat16),
    "tiny queries and keys": tiny_queries,
    "forward gives NaN": gives_nan,
}
