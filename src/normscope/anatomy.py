"""From a tensor's name to what it is: component, layer and role.

Model families are data (data/anatomy.json), not code: each has patterns for
names, tried in order. A name that no family knows gets the first number in it as its
layer and the role `other`; the scan says how many there are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import TypeVar

from normscope.errors import UsageError
from normscope.words import OUTSIDE

ROLES = (
    *("embedding", "q", "k", "v", "qkv", "attention output", "mlp in", "mlp out"),
    *("gate", "norm", "bias", "head", "other"),
)
OUTSIDE_BODY = frozenset({"embedding", "head"})
SCOPES = ("body", "all")

T = TypeVar("T")

WRAPPERS = re.compile(r"^(?:module\.|_orig_mod\.|_fsdp_wrapped_module\.|_forward_module\.)+")
INNER_WRAPPERS = re.compile(r"\.(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)(?=\.)")


@dataclass(frozen=True)
class Place:
    """Where a tensor is in the network; `component` is encoder, decoder or model."""

    component: str
    layer: int | None
    role: str
    known: bool

    @property
    def group(self) -> str:
        """The layer's name in tables and figures: "03", "encoder/03", or "outside"."""
        if self.layer is None:
            return OUTSIDE
        prefix = "" if self.component == "model" else f"{self.component}/"
        return f"{prefix}{self.layer:02d}"


def locate(name: str) -> Place:
    """Component, layer and role of the tensor of this name."""
    clean = unwrapped(name)
    for pattern, role in _patterns():
        found = pattern.fullmatch(clean)
        if found:
            return _place(clean, found, role)
    number = re.search(r"\d+", clean)
    return Place(_component(clean), int(number.group()) if number else None, "other", known=False)


def locate_all(names: Iterable[str]) -> dict[str, Place]:
    """Component, layer and role of each tensor of one model.

    A model with a single stack has one component, whatever its names say: BERT calls
    its stack `encoder`, OPT calls it `decoder`.
    """
    places = {name: locate(name) for name in names}
    if {"encoder", "decoder"} <= {place.component for place in places.values()}:
        return places
    return {name: replace(place, component="model") for name, place in places.items()}


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


# Buffers that state dicts contain beside parameters, recognised by name.
BUFFERS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (r"(?:.*\.)?(?:rotary_emb|rotary_pos_emb|rotary)\..*", "rotary table"),
        (r"(?:.*\.)?(?:inv_freq|original_inv_freq|freqs_cis|cos_cached|sin_cached)", "rotary table"),
        (r"(?:.*\.)?(?:masked_bias|causal_mask|attn_mask|tril)", "attention mask"),
        (r"(?:.*\.)?(?:position_ids|token_type_ids)", "index buffer"),
        (r"(?:.*\.)?(?:running_mean|running_var|num_batches_tracked)", "batch statistics"),
        (r"(?:optimizer|optim|lr_scheduler|scheduler|exp_avg|exp_avg_sq)[._/].*", "optimizer state"),
        (r"(?:.*[./])?(?:global_step|(?:.*_slot_v[cr]?))", "optimizer state"),
    )
)
MASK = re.compile(r"(?:.*\.)?(?:attn|attention)(?:\.attention)?\.bias")


def not_a_parameter(name: str, shape: Sequence[int]) -> str | None:
    """Why a stored tensor is not a parameter; None if it is one."""
    clean = unwrapped(name)
    if len(shape) == 4 and shape[0] == shape[1] == 1 and MASK.fullmatch(clean):
        return "attention mask"
    return next((reason for pattern, reason in BUFFERS if pattern.fullmatch(clean)), None)


def _place(name: str, found: re.Match[str], role: str) -> Place:
    groups = found.groupdict()
    layer = int(groups["layer"]) if groups.get("layer") else None
    if role not in ("embedding", "norm", "head") and re.search(r"(?:^|[._/])bias(?:_[kv])?$", name):
        role = "bias"
    return Place(_component(name), layer, role, known=True)


def _component(name: str) -> str:
    found = re.search(r"(?:^|[._/])(encoder|decoder)(?=[._/])", name)
    return found.group(1) if found else "model"


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
