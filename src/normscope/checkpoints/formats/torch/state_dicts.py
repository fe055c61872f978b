"""Finds the model in what people save: nested, wrapped, beside optimizers and configs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from normscope.checkpoints.formats.torch.pickle_values import CallRecord, Global, Pickle
from normscope.checkpoints.formats.torch.records import TensorRecord, parse_tensor
from normscope.errors import CorruptCheckpoint, UnknownFormat, UnsafeCheckpoint

WRAPPERS = (
    "state_dict", "model_state_dict", "model", "module", "model_state", "model_states", "network", "net",
    "params", "app",
)  # fmt: skip
"""Keys under which people store the state of the model, in the order in which they are tried."""

STEP_KEYS = ("global_step", "step", "iteration", "iter", "global_steps", "iter_num", "num_updates", "steps")

_NOT_MODEL = re.compile(
    r"^(optim|opt$|opt_|lr_sched|sched|scaler|grad_scaler|amp|.*rng_state|random_state|callbacks$|loops$)",
    re.I,
)
_HOSTILE_MODULES = frozenset(
    ("os", "posix", "nt", "subprocess", "sys", "shutil", "socket", "pty", "runpy", "importlib", "ctypes",
     "code", "commands", "webbrowser", "pickle", "_pickle", "marshal", "timeit", "pdb", "bdb", "asyncio",
     "http", "urllib")
)  # fmt: skip
_HOSTILE_BUILTINS = frozenset(
    ("exec", "eval", "compile", "__import__", "open", "input", "breakpoint", "execfile")
)
_MAX_DEPTH, _MAX_VISITS = 32, 300_000


@dataclass
class ModelState:
    """The tensors of the model by name, the skipped entries and why, and the step stored beside them."""

    tensors: dict[str, TensorRecord] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    step: int | TensorRecord | None = None


def find_model(pickle: Pickle, where: str) -> ModelState:
    """Find the model in an unpickled value; UnknownFormat if there is none."""
    _refuse_hostile(pickle, where)
    try:
        state = _collect(pickle.value)
    except CorruptCheckpoint as error:
        raise CorruptCheckpoint(f"{where}: {error}. Copy or save it again.") from None
    if not state.tensors:
        _refuse_empty(pickle, state, where)
    return state


def _collect(root: Any) -> ModelState:
    state = ModelState(step=_find_step(root))
    for path, value in _LeafVisitor().leaves(_unwrap(root, state), ()):
        _take(state, ".".join(path) or "tensor", value)
    return state


def children(value: Any) -> Iterator[tuple[str, Any]]:
    """The named parts of a container, of a module, or of an object of an unknown class."""
    if isinstance(value, dict):
        yield from ((str(key), child) for key, child in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(i), child) for i, child in enumerate(value))
    elif isinstance(value, CallRecord):
        yield from _parts_of_call(value)


def _parts_of_call(call: CallRecord) -> Iterator[tuple[str, Any]]:
    yield from ((str(key), child) for key, child in call.pairs.items())
    yield from ((str(i), child) for i, child in enumerate(call.items))
    if _is_named(call.function, "collections", "OrderedDict"):
        yield from _pairs(call.args)
        return  # its state consists of the version numbers of modules
    if isinstance(call.state, dict):
        if "_parameters" in call.state and "_modules" in call.state:
            for part in ("_parameters", "_buffers", "_modules"):
                yield from children(call.state.get(part))
        else:
            yield from children(call.state)


def _pairs(args: Any) -> Iterator[tuple[str, Any]]:
    """The pairs of OrderedDict([[key, value], …]), as older Pythons wrote it with protocol 2."""
    listed = args[0] if isinstance(args, tuple) and args and isinstance(args[0], list) else []
    for pair in listed:
        if isinstance(pair, list | tuple) and len(pair) == 2:
            yield str(pair[0]), pair[1]


def _is_named(function: Any, module: str, name: str) -> bool:
    return isinstance(function, Global) and function.module == module and function.name == name


class _LeafVisitor:
    """Visits the leaves of an untrusted structure: cycles are cut, and the number of visits is limited."""

    def __init__(self) -> None:
        self.visits = 0

    def leaves(
        self, value: Any, path: tuple[str, ...], above: tuple[int, ...] = ()
    ) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Yield the path and value of each tensor record."""
        self.visits += 1
        if self.visits > _MAX_VISITS:
            raise CorruptCheckpoint(f"it has too many entries (limit {_MAX_VISITS:,})")
        if id(value) in above or len(path) > _MAX_DEPTH:
            return
        if parse_tensor(value) is not None:
            yield path, value
            return
        for name, child in children(value):
            if isinstance(child, CallRecord | dict | list | tuple):
                yield from self.leaves(child, (*path, name), (*above, id(value)))


def _take(state: ModelState, name: str, value: Any) -> None:
    record = parse_tensor(value)
    if isinstance(record, str):
        state.skipped[name] = record
    elif isinstance(record, TensorRecord):
        if name in state.tensors:
            raise CorruptCheckpoint(f"the tensor {name[:200]!r} appears twice")
        state.tensors[name] = record


def _unwrap(value: Any, state: ModelState) -> Any:
    """Step into wrappers, and skip the entries beside the model."""
    for _ in range(3):
        entries = dict(children(value)) if _is_mapping(value) else {}
        key = next((k for k in WRAPPERS if k in entries and has_tensor(entries[k])), None)
        if key is None:
            break
        for other in entries.keys() - {key}:
            if has_tensor(entries[other]):
                state.skipped[other] = _reason(other, entries[other]) or f"beside the model, which is {key!r}"
        value = entries[key]
    return _without_optimizer(value, state)


def _without_optimizer(value: Any, state: ModelState) -> Any:
    if not _is_mapping(value) or (
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
        state.skipped["state"] = "optimizer state"
        return {}
    return kept


def _reason(key: str, value: Any) -> str | None:
    """Why an entry is not part of the model; None if it may be."""
    if _is_mapping(value) and {"state", "param_groups"} <= dict(children(value)).keys():
        return "optimizer state"
    if key in STEP_KEYS:
        return "the training step"
    if _NOT_MODEL.match(key) and (_is_mapping(value) or isinstance(value, list | tuple) or "rng" in key):
        return "optimizer, scheduler or random state"
    return None


def is_beside_model(key: str) -> bool:
    """Whether a key names what trainers save beside a model: optimizer, scheduler, random state, step."""
    return key in STEP_KEYS or _NOT_MODEL.match(key) is not None


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, CallRecord) and parse_tensor(value) is None)


def has_tensor(value: Any) -> bool:
    """Whether there is a tensor anywhere inside."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if parse_tensor(value) is not None:
            return True
        if id(value) not in seen:
            seen.add(id(value))
            waiting += [
                child for _, child in children(value) if isinstance(child, CallRecord | dict | list | tuple)
            ]
    return False


def _find_step(root: Any) -> int | TensorRecord | None:
    entries = dict(children(root)) if _is_mapping(root) else {}
    for key in STEP_KEYS:
        value = entries.get(key)
        if type(value) is int and 0 <= value < 1 << 62:
            return value
        record = parse_tensor(value)
        if isinstance(record, TensorRecord) and record.numel == 1 and record.dtype in ("int64", "int32"):
            return record
    return None


def _refuse_hostile(pickle: Pickle, where: str) -> None:
    if named := next(filter(is_hostile, pickle.globals), None):
        raise UnsafeCheckpoint(
            f"{where} would call {str(named)[:100]} when loaded, which no checkpoint needs to do. "
            "Nothing was run. Do not load it with another program either."
        )


def _refuse_empty(pickle: Pickle, state: ModelState, where: str) -> None:
    if set(state.skipped.values()) & {"optimizer state", "optimizer, scheduler or random state"}:
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
    return function.module.startswith("torch.") or function.module in ("torch", "collections")


def is_hostile(function: Global) -> bool:
    """Whether a checkpoint could name this function only to run something on the reader's machine."""
    top = function.module.split(".")[0]
    if top in ("builtins", "__builtin__"):
        return function.name.split(".")[0] in _HOSTILE_BUILTINS
    return top in _HOSTILE_MODULES
