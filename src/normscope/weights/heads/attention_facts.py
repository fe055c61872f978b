"""What must be known about attention beside its matrices: how many heads, in which order, how scaled.

A config says how many heads there are, and data/attention-families.json what families of models do with
them. Shapes alone do not: a matrix [64, 64] may be one head or 64, so without a config the caller must say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from normscope.errors import MatrixError, UsageError
from normscope.option_checks import check_integer

BLOCKS, GROUPS = "blocks", "groups"
ORDERS = (BLOCKS, GROUPS)
"""Orders of a fused projection: all queries, all keys, all values; or these three for each key head."""
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv")
HEAD_SIZES = ("head_dim", "d_kv")
ROTARY_KEYS = ("rope_theta", "rope_parameters", "rope_scaling", "rotary_dim", "rotary_pct", "rotary_emb_base")
PLAIN_ROTATIONS = frozenset({"default", "linear", "dynamic", "llama3"})
"""Rotations that keep the length of queries and keys; any other kind may not."""
UNKNOWN_HEADS = (
    "the number of attention heads is not known: no config.json beside the checkpoints says it, and shapes "
    "cannot; give it with --query-heads N (query_heads), and --kv-heads M if keys and values have fewer"
)
NESTED = {"text": "text_config", "vision": "vision_config", "audio": "audio_config"}


@dataclass(frozen=True)
class HeadOptions:
    """What a caller says about heads; None leaves it to the config."""

    heads: int | None = None
    key_heads: int | None = None
    order: str | None = None

    def __post_init__(self) -> None:
        for name in ("heads", "key_heads"):
            value = getattr(self, name)
            if value is not None:
                check_integer("query_heads" if name == "heads" else "kv_heads", value, 1)
        if self.order not in (None, *ORDERS):
            raise UsageError(f"qkv_order must be {' or '.join(ORDERS)}; got {self.order!r}")
        if self.heads is None and (self.key_heads is not None or self.order is not None):
            raise UsageError("kv_heads and qkv_order need query_heads (--query-heads N)")


@dataclass(frozen=True)
class AttentionFacts:
    """What is known about the attention of one layer.

    `key_heads` and `size` are None where shapes tell them; `scale` is what logits are multiplied with, None
    for 1/√size; `assumed` says that this is a guess. `norm` is its kind and the names it may have; `why` says
    why there is no bound.
    """

    heads: int
    key_heads: int | None
    size: int | None
    order: str | None = None
    transposed: bool = False
    rotary: bool | None = None
    scale: float | None = None
    assumed: bool = True
    norm: Sequence[str] = ()
    why: str = ""


@dataclass(frozen=True)
class AttentionSettings:
    """A config and what the caller says, from which the facts of each layer follow."""

    document: Mapping[str, Any]
    options: HeadOptions = HeadOptions()

    @property
    def recorded(self) -> dict[str, Any]:
        """What rows of heads depend on, as the run file keeps it."""
        facts = {name: self._facts_or_none(name) for name in ("model", "encoder", "decoder", "text")}
        return {"options": vars(self.options), "facts": {name: repr(found) for name, found in facts.items()}}

    def _facts_or_none(self, component: str) -> AttentionFacts | None:
        try:
            return self.facts(component, 0)
        except MatrixError:
            return None

    def check(self) -> None:
        """UsageError if nobody says how many heads there are."""
        nested = [each for each in self.document.values() if isinstance(each, Mapping)]
        keys = {key for each in (self.document, *nested) for key in each}
        counted = keys & {*HEADS, "encoder_attention_heads", "decoder_attention_heads"}
        if self.options.heads is None and not counted:
            raise UsageError(UNKNOWN_HEADS)

    def facts(self, component: str, layer: int | None) -> AttentionFacts:
        """The facts of a layer; a MatrixError says what is missing."""
        document = self._of_component(component)
        heads = _count(document, (f"{component}_attention_heads", *HEADS), "heads")
        heads = _agreed(heads, self.options.heads, "query-heads")
        if heads is None:
            raise MatrixError(UNKNOWN_HEADS)
        key_heads = _agreed(_key_heads(document, heads), self.options.key_heads, "kv-heads")
        size = _count(document, HEAD_SIZES, "head size")
        family = _families().get(str(document.get("model_type")))
        if family is None:
            why = "the family of the model is not known, nor the norm before its attention"
            return AttentionFacts(
                heads, key_heads, size, self.options.order, rotary=_rotary(document), why=why
            )
        return AttentionFacts(
            heads,
            key_heads,
            size,
            _agreed_order(family.get("qkv"), self.options.order),
            bool(family.get("conv1d")),
            False if document.get("alibi") else family.get("rotary", _rotary(document)),
            _scale(document, family, layer),
            assumed=False,
            norm=tuple(family.get("norm", ())),
            why=_why_no_bound(document, family),
        )

    def _of_component(self, component: str) -> Mapping[str, Any]:
        """The config of a component: of a model of several it may be nested."""
        nested = self.document.get(NESTED.get(component, "text_config"))
        return nested if isinstance(nested, Mapping) else self.document


@cache
def _families() -> Mapping[str, Mapping[str, Any]]:
    text = resources.files("normscope.data").joinpath("attention-families.json").read_text("utf-8")
    found: Mapping[str, Mapping[str, Any]] = json.loads(text)["families"]
    return found


def _count(document: Mapping[str, Any], keys: Sequence[str], what: str) -> int | None:
    """A number of the config; None if it has none, a MatrixError if it differs from layer to layer."""
    for key in keys:
        value = document.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        if isinstance(value, (list, tuple)):
            raise MatrixError(f"the config gives each layer its own {key} ({what}), which is not supported")
    return None


def _key_heads(document: Mapping[str, Any], heads: int) -> int | None:
    """Heads of keys and values; a config that does not speak of them leaves them to the shapes."""
    grouped = _count(document, KEY_HEADS, "key heads")
    if document.get("new_decoder_architecture") or "multi_query" not in document:
        return grouped
    return 1 if document["multi_query"] else heads


def _agreed(config: int | None, given: int | None, name: str) -> int | None:
    if config is not None and given is not None and config != given:
        raise UsageError(f"--{name} {given} contradicts the config, which says {config}; leave it out")
    return config if given is None else given


def _agreed_order(family: str | None, given: str | None) -> str | None:
    if family is not None and given is not None and family != given:
        known = f"is {family}" if family in ORDERS else f"is neither {BLOCKS} nor {GROUPS}: leave it out"
        raise UsageError(f"--qkv-order {given} contradicts the family of the config, whose order {known}")
    return given if family is None else family


def _rotary(document: Mapping[str, Any]) -> bool | None:
    """Whether the config speaks of rotary positions; None if it is silent."""
    if document.get("positions") is not None:  # a model of the lab
        return bool(document["positions"] == "rotary")
    return True if any(document.get(key) is not None for key in ROTARY_KEYS) else None


def _scale(document: Mapping[str, Any], family: Mapping[str, Any], layer: int | None) -> float | None:
    rule = str(family.get("scale", ""))
    if rule == "one" or document.get("scale_attn_weights") is False:
        return 1.0
    if document.get("scale_attn_by_inverse_layer_idx"):
        raise MatrixError("its logits are divided by the number of the layer too, which is not supported")
    value = document.get(rule.removeprefix("-")) if rule else None
    if not rule or value is None:
        return None
    return float(value) ** -0.5 if rule.startswith("-") else float(value)


def _why_no_bound(document: Mapping[str, Any], family: Mapping[str, Any]) -> str:
    """Why the logits have no bound that is known; "" if they have one."""
    if "norm" not in family:
        return f"which norm comes before the attention of {document.get('model_type')} is not known"
    for key, value in family.get("only", {}).items():
        if document.get(key) != value:
            return f"its {key} is {document.get(key)!r}, and one is known only where it is {value!r}"
    if _rotations(document) - PLAIN_ROTATIONS:
        return "its rotary embeddings may also lengthen queries and keys"
    if document.get("position_embedding_type") not in (None, "absolute"):
        return "its relative positions add to the logits what depends on the query"
    return ""


def _rotations(document: Mapping[str, Any]) -> set[str]:
    """Every word in what the config says about its rotary embeddings, which may differ by kind of layer."""
    found: set[str] = set()
    todo = [document.get(key) for key in ("rope_parameters", "rope_scaling")]
    while todo:
        value = todo.pop()
        if isinstance(value, Mapping):
            todo += value.values()
        elif isinstance(value, str):
            found.add(value)
    return found
