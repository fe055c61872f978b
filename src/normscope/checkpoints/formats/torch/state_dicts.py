"""Finds the model in what people save: nested, wrapped, beside optimizers, copies and other networks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from normscope.checkpoints.formats.torch.hostile_names import refuse_hostile
from normscope.checkpoints.formats.torch.nested_values import (
    LeafVisitor,
    children,
    has_tensor,
    is_mapping,
    is_module,
    is_optimizer,
    is_state_dict,
    one_walk,
)
from normscope.checkpoints.formats.torch.pickle_values import CallRecord, Global, Pickle
from normscope.checkpoints.formats.torch.records import TensorRecord, parse_tensor
from normscope.checkpoints.formats.torch.subclasses import parse_subclass
from normscope.checkpoints.limits import limits
from normscope.checkpoints.slot_names import (
    BESIDE,
    OPTIMIZER,
    STEP_KEYS,
    is_other_state,
    is_slot,
    is_sure_optimizer,
    may_be_optimizer,
)
from normscope.errors import CheckpointError, CorruptCheckpoint, UnknownFormat, UnsafeCheckpoint

WRAPPERS = (
    "state_dict", "model_state_dict", "model", "module", "model_state", "model_states", "network", "net",
    "params", "app",
)  # fmt: skip
"""Keys under which people store the state of the model, in the order in which they are tried."""

COPY = re.compile(
    r".*(?:^|_)(?:ema|best|averaged?|avg|swa|shadow|backup|old|init|initial|last)(?:_|$).*", re.I
)
"""Keys of other states of the same model."""
WEIGHTS = frozenset(("weight", "kernel", "in_proj_weight", "weight_g", "weight_v", "weight_orig"))
"""Names of the matrices by which a network is told from other things that contain tensors."""


@dataclass
class ModelState:
    """The tensors of the model by name, the skipped entries and why, and the step stored beside them.

    `buffers` and `parameters` are the tensors that the file declares as such; `networks` are the keys of
    several networks; `metadata` describes, in JSON, tensor subclasses whose parts are listed as tensors.
    """

    tensors: dict[str, TensorRecord] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    step: int | TensorRecord | None = None
    buffers: set[str] = field(default_factory=set)
    parameters: set[str] = field(default_factory=set)
    networks: tuple[str, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)


def find_model(pickle: Pickle, where: str) -> ModelState:
    """Find the model in an unpickled value; UnknownFormat if there is none."""
    refuse_hostile(pickle, where)
    try:
        with one_walk():
            state = _collect(pickle.value)
    except CorruptCheckpoint as error:
        raise CorruptCheckpoint(f"{where}: {error}. Copy or save it again.") from None
    if not state.tensors:
        _refuse_empty(pickle, state, where)
    _refuse_placeholders(state, where)
    return state


def _collect(root: Any) -> ModelState:
    state = ModelState(step=find_step(root))
    visitor = LeafVisitor()
    for path, value in visitor.leaves(_unwrap(root, state)):
        _take(state, _dotted(path), value)
    state.skipped |= {_dotted(path): OPTIMIZER for path in visitor.optimizers}
    state.buffers |= {_dotted(path) for path in visitor.buffers}
    state.parameters |= {_dotted(path) for path in visitor.parameters}
    return state


def _dotted(path: tuple[str, ...]) -> str:
    if len(path) > 1 and sum(map(len, path)) > limits().name:
        raise CorruptCheckpoint(f"the name of a tensor is too long: {'.'.join(path)[:100]!r}")
    return ".".join(path) or "tensor"


def _take(state: ModelState, name: str, value: Any) -> None:
    record = parse_tensor(value)
    subclass = parse_subclass(value) if isinstance(record, str) else None
    if subclass is not None:
        for part, inner in subclass.parts(name):
            _take(state, part, inner)
        state.metadata[name] = subclass.description
    elif isinstance(record, str):
        state.skipped[name] = record
    elif isinstance(record, TensorRecord):
        if name in state.tensors:
            raise CorruptCheckpoint(f"the tensor {name[:200]!r} appears twice")
        state.tensors[name] = record


def _unwrap(value: Any, state: ModelState) -> Any:
    """Step into wrappers, and skip the entries beside the model that are not networks themselves."""
    for _ in range(3):
        # A module may call one of its parts `model` or `net`; the rest of it is part of the model, too.
        entries = dict(children(value)) if is_mapping(value) and not is_module(value) else {}
        key = next((k for k in WRAPPERS if k in entries and has_tensor(entries[k])), None)
        if key is None:
            break
        state.buffers |= _strings(entries.get("buffer_names"))  # DeepSpeed lists the names of all buffers
        networks = _networks_beside(key, entries, state)
        if networks:
            state.networks = (key, *networks)
            return {name: _without_wrapper(entries[name]) for name in state.networks}
        value = entries[key]
    return _without_optimizer(value, state)


def _networks_beside(key: str, entries: dict[str, Any], state: ModelState) -> list[str]:
    """The keys of other networks beside the model; everything else is listed with the reason."""
    found = []
    for other, value in entries.items():
        if other == key or not has_tensor(value):
            continue
        reason = _reason(other, value)
        if reason is None and _is_network(value) and other not in WRAPPERS and not COPY.fullmatch(other):
            found.append(other)
        else:
            state.skipped[other] = reason or f"beside the model, which is {key!r}"
    return found


def _without_wrapper(value: Any) -> Any:
    """A network without a wrapper of its own: {"model": {"state_dict": …}, "critic": …}."""
    entries = dict(children(value)) if is_mapping(value) else {}
    key = next((k for k in WRAPPERS if k in entries and is_mapping(entries[k])), None)
    return entries[key] if key is not None and len(entries) == 1 else value


def _without_optimizer(value: Any, state: ModelState) -> Any:
    if not is_mapping(value) or (
        isinstance(value, CallRecord) and isinstance(value.state, dict) and not value.pairs
    ):
        return value
    kept: dict[str, Any] = {}
    for key, child in children(value):
        reason = _reason(key, child)
        if reason is None:
            kept[key] = child
        elif has_tensor(child):
            state.skipped[key] = reason
    if {"state", "param_groups"} <= kept.keys():
        state.skipped["state"] = OPTIMIZER
        return {}
    state.networks = _several_networks(kept)
    return kept


def _several_networks(entries: dict[str, Any]) -> tuple[str, ...]:
    """The keys, if a file consists of several state dicts side by side, or of lists of them."""
    keys = []
    for key, value in entries.items():
        if is_state_dict(value):
            keys.append(key)
        elif isinstance(value, list | tuple):
            keys += [f"{key}.{i}" for i, each in children(value) if is_state_dict(each)]
    return tuple(keys) if len(keys) > 1 else ()


def _reason(key: str, value: Any) -> str | None:
    """Why an entry is not part of the model; None if it may be."""
    nested = is_mapping(value) or isinstance(value, list | tuple)
    if is_optimizer(value) or (isinstance(value, list | tuple) and value and all(map(is_optimizer, value))):
        return OPTIMIZER
    if key in STEP_KEYS and _may_be_step(value):
        return "the training step"
    if is_other_state(key) and (nested or "rng" in key.lower()) and not _is_network(value):
        return BESIDE
    if nested and is_sure_optimizer(key) and not _is_network(value):
        return OPTIMIZER
    if nested and may_be_optimizer(key) and any(map(is_slot, _names(value))):
        return OPTIMIZER
    return None


def _may_be_step(value: Any) -> bool:
    """Whether a value is not a tensor, or one integer: a step size is a parameter."""
    record = parse_tensor(value)
    return not isinstance(record, TensorRecord) or (record.numel == 1 and "int" in record.dtype)


def _names(value: Any) -> frozenset[str]:
    """The names of the tensors inside; optimizers are left out."""
    return frozenset(_dotted(path) for path, _ in LeafVisitor().leaves(value))


def _is_network(value: Any) -> bool:
    """Whether there is a matrix of weights inside, and nothing that only optimizers have."""
    if not is_mapping(value):
        return False
    found = [(path, parse_tensor(leaf)) for path, leaf in LeafVisitor().leaves(value)]
    matrices = [
        path
        for path, record in found
        if isinstance(record, TensorRecord) and len(record.shape) > 1 and _last(path) in WEIGHTS
    ]
    return bool(matrices) and not any(is_slot(_dotted(path)) for path, _ in found)


def _last(path: tuple[str, ...]) -> str:
    return _dotted(path).rpartition(".")[2]


def _strings(value: Any) -> set[str]:
    listed: Iterable[Any] = value if isinstance(value, list | tuple) else ()
    return {each for each in listed if isinstance(each, str)}


def find_step(root: Any) -> int | TensorRecord | None:
    """The training step beside the model, as a number or as a tensor that holds it."""
    entries = dict(children(root)) if is_mapping(root) else {}
    step = _step_among(entries)
    if step is not None:
        return step
    history = entries.get("optimizer_history")  # fairseq: one entry for each optimizer, the last one in use
    nested = history[-1] if isinstance(history, list) and history else entries.get("meta")  # meta: mmengine
    return _step_among(dict(children(nested))) if is_mapping(nested) else None


def _step_among(entries: dict[str, Any]) -> int | TensorRecord | None:
    for key in STEP_KEYS:
        value = entries.get(key)
        if type(value) is int and 0 <= value < 1 << 62:
            return value
        record = parse_tensor(value)
        if isinstance(record, TensorRecord) and record.numel == 1 and record.dtype in ("int64", "int32"):
            return record
    return None


def _refuse_placeholders(state: ModelState, where: str) -> None:
    """CheckpointError if most tensors are empty: ZeRO stage 3 stores the parameters in other files."""
    empty = [name for name, record in state.tensors.items() if record.numel == 0]
    if 2 * len(empty) > len(state.tensors) > 1:
        raise CheckpointError(
            f"{where} contains no parameters: {len(empty)} of its {len(state.tensors)} tensors are empty "
            f"(for example {empty[0][:200]!r}). DeepSpeed's ZeRO stage 3 saves such files; gather the "
            "parameters with its zero_to_fp32.py, and scan the result."
        )


def _refuse_empty(pickle: Pickle, state: ModelState, where: str) -> None:
    if set(state.skipped.values()) & {OPTIMIZER, BESIDE}:
        raise UnknownFormat(f"{where} contains optimizer or scheduler state, but no model.")
    if state.skipped:
        name, reason = next(iter(state.skipped.items()))
        raise UnknownFormat(f"{where} contains no tensor that can be measured: {name[:200]!r} is {reason}.")
    if named := next((g for g in pickle.globals if not _is_harmless(g)), None):
        raise UnsafeCheckpoint(
            f"{where} contains no tensors, only objects such as {str(named)[:100]}, whose code would have "
            "to be run; normscope never does that. Save the model's state_dict() instead."
        )
    raise UnknownFormat(f"{where} is a pickle without tensors; expected a state_dict.")


def _is_harmless(function: Global) -> bool:
    return function.module.startswith("torch.") or function.module in ("torch", "collections", "numpy")
