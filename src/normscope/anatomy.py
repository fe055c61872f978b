"""From a tensor's name to what it is: component, layer and role.

What names mean is data (data/anatomy.json), not code: patterns, tried in order, for names written in one
spelling. Where a name says nothing, the class of the module does if the model is live, and otherwise the
shapes (shape_roles.py). What is still unknown gets the first number of its name as its layer and the role
`other`; the scan says how many there are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from typing import TypeVar

from normscope.errors import UsageError
from normscope.rows import TensorRow
from normscope.shape_roles import roles_by_kind_and_shape
from normscope.words import OUTSIDE

ROLES = (
    *("embedding", "q", "k", "v", "qkv", "attention output", "mlp in", "mlp out"),
    *("gate", "norm", "bias", "head", "other"),
    *("expert in", "expert out", "router", "latent", "ssm", "lora"),
)
OUTSIDE_BODY = frozenset({"embedding", "head"})
SCOPES = ("body", "all")

T = TypeVar("T")

COMPONENTS = {
    **{"encoder": "encoder", "decoder": "decoder", "text": "text", "language": "text"},
    **{"vision": "vision", "visual": "vision", "image": "vision", "audio": "audio", "speech": "audio"},
}
"""Words for the networks of a model, and the names of their components."""
_COMPONENT = re.compile(
    rf"(?:^|\.)(?:[a-z0-9_]+_)?({'|'.join(COMPONENTS)})(?:_(?:model|tower|encoder|backbone|stack))?\."
)

_PROJECTION = re.compile(r"(?:\w+\.)*?(text|visual|vision|image|audio|speech)_projection\b")
WRAPPERS = re.compile(r"^(?:module\.|_orig_mod\.|_fsdp_wrapped_module\.|_forward_module\.)+")
INNER_WRAPPERS = re.compile(r"\.(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)(?=\.)")


@dataclass(frozen=True)
class Place:
    """Where a tensor is in the network; `component` is encoder, decoder, text, vision, audio or model."""

    component: str
    layer: int | None
    role: str
    known: bool
    """Whether the name, the class or the shape says what the tensor is; otherwise its role is a guess."""

    @property
    def group(self) -> str:
        """The layer's name in tables and figures: "03", "encoder/03", or "outside"."""
        if self.layer is None:
            return OUTSIDE
        prefix = "" if self.component == "model" else f"{self.component}/"
        return f"{prefix}{self.layer:02d}"


def locate(name: str) -> Place:
    """Component, layer and role of the tensor of this name."""
    path = _path(name)
    role = _role(path.stem) or _role(re.sub(r"(^|\.)\d+(?=\.)", r"\1#", path.stem, count=1))
    if role is not None:
        return _place(path, role)
    number = re.search(r"\d+", path.whole)
    layer = path.layer if path.layer is not None else _layer(number.group()) if number else None
    return Place(_component(path.whole), layer, "other", known=False)


def locate_all(
    names: Iterable[str],
    shapes: Mapping[str, Sequence[int]] | None = None,
    kinds: Mapping[str, str] | None = None,
) -> dict[str, Place]:
    """Component, layer and role of each tensor of one model.

    `shapes` tell embeddings, heads and norms among the names that say nothing. `kinds` are
    what the modules of a live model are, by the names of their parameters: embedding, linear or norm.
    A model with a single stack has one component, whatever its names say: BERT calls
    its stack `encoder`, OPT calls it `decoder`.
    """
    places = {name: locate(name) for name in names}
    found = _by_siblings(places)
    places |= {name: replace(places[name], role=role, known=True) for name, role in found.items()}
    for name, role in roles_by_kind_and_shape(places, shapes or {}, kinds or {}).items():
        layer = None if role in OUTSIDE_BODY else places[name].layer
        places[name] = replace(places[name], role=role, layer=layer, known=True)
    stacks = {place.component for place in places.values() if place.layer is not None}
    if len(stacks) > 1:
        return places
    return {name: replace(place, component="model") for name, place in places.items()}


def unknown_tensors(tensors: Sequence[TensorRow]) -> list[TensorRow]:
    """The tensors of a run file of which no name, shape or class of a live module says what they are."""
    places = locate_all([t.name for t in tensors], {t.name: t.shape for t in tensors})
    found = [(tensor, places[tensor.name]) for tensor in tensors]
    return [t for t, place in found if t.role == "other" and not (place.known and place.role == "other")]


def unwrapped(name: str) -> str:
    """The name without the prefixes of DDP, FSDP, torch.compile and DeepSpeed."""
    return INNER_WRAPPERS.sub("", WRAPPERS.sub("", name))


def in_body(role: str, shape: Sequence[int]) -> bool:
    """Whether a tensor belongs to the body, the paper's scope: no scalars, embeddings or output head."""
    return role not in OUTSIDE_BODY and len(shape) > 0


def in_scope(
    items: Sequence[T], scope: str, role_and_shape: Callable[[T], tuple[str, Sequence[int]]]
) -> list[T]:
    """The items in a scope; `role_and_shape` gives the role and shape of an item.

    `body` is the paper's scope. If no item belongs to the body, all items are returned.
    """
    if scope not in SCOPES:
        raise UsageError(f"unknown scope {scope!r}: expected {' or '.join(SCOPES)}")
    body = [item for item in items if in_body(*role_and_shape(item))] if scope == "body" else []
    return body or list(items)


NO_BODY = "all (no body)"
"""The scope of a number for which the body was asked for, of a model in which nothing belongs to it."""
_SCOPE_WORDS = {"body": "the body", "all": "all parameters", NO_BODY: "all parameters (there is no body)"}


def scope_used(
    items: Sequence[T], scope: str, role_and_shape: Callable[[T], tuple[str, Sequence[int]]]
) -> str:
    """Which parameters `in_scope` really returns: body, all, or NO_BODY."""
    if scope != "body" or any(in_body(*role_and_shape(item)) for item in items):
        return scope
    return NO_BODY


def scope_words(scope: str) -> str:
    """What a sentence calls the parameters of a scope; empty if the scope is not known.

    >>> scope_words("body")
    'the body'
    """
    return _SCOPE_WORDS.get(scope, scope)


def of_scope(scope: str) -> str:
    """The words that follow "the norm" in a sentence; empty if the scope is not known.

    >>> f"the norm{of_scope('all')}"
    'the norm of all parameters'
    """
    return f" of {scope_words(scope)}" if scope else ""


def rest_words(scope: str) -> str:
    """What a sentence calls the scope that a number beside a number of `scope` is about.

    >>> rest_words("body"), rest_words("all")
    ('with embeddings and head', 'without embeddings and head')
    """
    return "without embeddings and head" if scope == "all" else "with embeddings and head"


@dataclass(frozen=True)
class _Path:
    """A name as the patterns see it: `whole`, and `stem` without the `leaf` and with # for the layer."""

    whole: str
    stem: str
    leaf: str
    layer: int | None


LEAF = re.compile(
    r"(?P<stem>.*?)(?:^|(?<=.)[._])(?P<leaf>weight\d*|weight_[vg]|bias\d*|kernel)"
    r"|(?P<stem1>.*)\.(?P<leaf1>[wbg]|scale|offset|gamma|beta|vars\.\d+)"
)
_TWO_LINEARS = {"linear": "mlp in", "linear_1": "mlp out"}
STACK = r"(?:\w*_)?(?:layers?|blocks?|resblocks|stages?|layer_groups|h|blk|cells?|encoderblock|decoderblock)"


def _role(stem: str) -> str | None:
    return _first_match(re.sub(r"(?<=\.)\d{2,}(?=\.|$)", "10", stem))  # fewer names to remember


@lru_cache(maxsize=1 << 16)
def _first_match(stem: str) -> str | None:
    return next((role for pattern, role in _patterns() if pattern.fullmatch(stem)), None)


@lru_cache(maxsize=1 << 16)
def _path(name: str) -> _Path:
    whole = _one_spelling(unwrapped(name))
    found = LEAF.fullmatch(whole)
    stem, leaf = (
        (found["stem"] or found["stem1"] or "", found["leaf"] or found["leaf1"]) if found else (whole, "")
    )
    number = re.search(rf"(?:^|\.){STACK}\.(\d+)(?=\.|$)", stem)
    if number is None:
        return _Path(whole, stem, leaf, None)
    return _Path(whole, f"{stem[: number.start(1)]}#{stem[number.end(1) :]}", leaf, _layer(number[1]))


def _layer(digits: str) -> int | None:
    """The number of a layer; one of 19 digits or more does not count layers."""
    return int(digits) if len(digits) < 19 else None


def _one_spelling(name: str) -> str:
    """Lower case with underscores, dots between the parts: `h_0/SelfAttention/q` → `h.0.self_attention.q`."""
    name = re.sub(r":\d+$|(?<![^./])~[./]", "", name.replace("_._", "/")).replace("/", ".")
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    name = re.sub(r"\.(?:base_layer|original_module|modules_to_save\.\w+)(?=\.)", "", name)
    name = re.sub(r"\.parametrizations\.(\w+)\.original\d?$", r".\1", name)
    name = re.sub(r"(?:^|(?<=\.))(h\d+)_(?=attn|mlp|ln)", r"\1.", name)  # Haiku, as `~` above
    name = re.sub(r"^(encoder|decoder)_l(\d+)_(?=\w)", r"\1.layers.\2.", name)  # Marian
    return re.sub(rf"(?:^|(?<=\.))({STACK})_?(\d+)(?=\.|$)", r"\1.\2", name)


def _place(path: _Path, role: str) -> Place:
    if role not in ("embedding", "norm", "head", "lora") and re.match(r"bias|b$", path.leaf):
        role = "bias"
    layer = path.layer
    if layer is None:
        number = re.search(r"(?<!heads)(?<!experts)(?<!linears)(?:^|\.)(\d+)(?=\.)", path.stem)
        layer = _layer(number[1]) if number else None
    return Place(_component(path.whole), None if role in OUTSIDE_BODY else layer, role, known=True)


def _component(path: str) -> str:
    """The outermost part of a name that says which network of several this is."""
    found = _COMPONENT.search(path)
    return COMPONENTS[found[1]] if found else "model"


def _by_siblings(places: Mapping[str, Place]) -> dict[str, str]:
    """Roles that other names decide: `mlp.gate` beside `mlp.experts` is a router, not the gate of an MLP."""
    whole = {name: _path(name).whole for name in places}
    paths = set(whole.values())
    experts = {
        re.split(r"\.(?:\w+_)?experts?(?=[._])", path)[0] for path in whole.values() if "expert" in path
    }
    lone = _lone_projection(places, whole)
    found = {}
    for name, path in whole.items():
        parent, _, module = path.rpartition(".")[0].rpartition(".")
        beside = {word for word in ("proj", "c_proj", "wqkv", "q_proj") if f"{parent}.{word}.weight" in paths}
        if module in ("gate", "wg") and parent in experts and places[name].role != "bias":
            found[name] = "router"
        elif module == "fc_2" and "proj" in beside:  # litgpt: fc_1 and fc_2 lead in
            found[name] = "mlp in"
        elif module == "w2" and "c_proj" in beside:  # Qwen: w1 and w2 lead in
            found[name] = "gate"
        elif module == "out_proj" and places[name].role == "ssm" and beside & {"wqkv", "q_proj"}:
            found[name] = "attention output"
        elif (
            places[name].role in _TWO_LINEARS.values()
            and {f"{parent}.linear.w", f"{parent}.linear_1.w"} <= paths
        ):
            found[name] = _TWO_LINEARS.get(module, places[name].role)  # Haiku numbers from the second on
        elif places[name].role == "head" and f"{path}.".startswith(f"{lone}."):
            found[name] = "other"
    return found


def _lone_projection(places: Mapping[str, Place], whole: Mapping[str, str]) -> str | None:
    """The module from pictures or sound into a language model; with a second one, both are output heads."""
    named = [_PROJECTION.match(path) for path in whole.values() if "_projection" in path]
    modules = {found.group(): found[1] for found in named if found}
    words = any(p.role == "embedding" and re.search("tok|word|wte", whole[n]) for n, p in places.items())
    lone = len(modules) == 1 and "text" not in modules.values() and words
    return next(iter(modules)) if lone else None


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    table = json.loads(resources.files("normscope.data").joinpath("anatomy.json").read_text("utf-8"))
    return [
        (re.compile(_expand(pattern, table["macros"])), role)
        for family in table["families"]
        for role, patterns in family["roles"].items()
        for pattern in patterns
    ]


def _expand(pattern: str, macros: dict[str, str]) -> str:
    while any(macro in pattern for macro in macros):
        for macro, meaning in macros.items():
            pattern = pattern.replace(macro, meaning)
    return pattern
