"""Walks through what a pickle contains: dictionaries, lists, modules, objects of unknown classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from normscope.checkpoints.formats.torch.pickle_values import CallRecord, Global, Opaque, shown
from normscope.checkpoints.formats.torch.records import parse_tensor
from normscope.checkpoints.limits import limits
from normscope.errors import CorruptCheckpoint

_MAX_DEPTH, _MAX_VISITS = 32, 300_000
_VISIT = 10
"""What a visit to a container or a tensor counts, in entries that are only passed over."""
_LONG_KEY = 1000

Path = tuple[str, ...]


class Walk:
    """The work of looking through one pickle: what is left of it, and which containers have tensors inside.

    A few bytes of pickle can share one structure in many places, so every entry counts wherever it is met.
    """

    def __init__(self) -> None:
        self.most = self.left = limits().work
        self.has_tensor: dict[int, tuple[Any, bool]] = {}  # with the value itself, so that no id is reused

    def count(self, entries: int) -> None:
        """Count entries; CorruptCheckpoint if they are too many."""
        self.left -= entries
        if self.left < 0:
            raise CorruptCheckpoint(
                f"its structure takes too long to look through (limit {self.most:,} visits)"
            )


_walk: ContextVar[Walk | None] = ContextVar("walk", default=None)


@contextmanager
def one_walk() -> Iterator[None]:
    """Count everything that is done inside as the work on one pickle."""
    token = _walk.set(Walk())
    try:
        yield
    finally:
        _walk.reset(token)


def current_walk() -> Walk:
    """The walk around the caller, or one of its own."""
    return _walk.get() or Walk()


def children(value: Any) -> Iterator[tuple[str, Any]]:
    """The named parts of a container, of a module, or of an object of an unknown class."""
    if isinstance(value, dict):
        yield from _items(value)
    elif isinstance(value, list | tuple):
        yield from _elements(value)
    elif isinstance(value, CallRecord):
        yield from _parts_of_call(value)


def _items(value: dict[Any, Any]) -> Iterable[tuple[str, Any]]:
    current_walk().count(len(value))
    return ((_key_text(key, i), child) for i, (key, child) in enumerate(value.items()))


def _elements(value: list[Any] | tuple[Any, ...]) -> Iterable[tuple[str, Any]]:
    current_walk().count(len(value))
    return ((str(i), child) for i, child in enumerate(value))


def _key_text(key: Any, i: int) -> str:
    """A key as part of a name; one that is too long, or cannot be shown, is told apart by its position."""
    if type(key) is str:
        return key if len(key) <= _LONG_KEY else f"{key[:200]}… ({len(key):,} characters, entry {i})"
    return f"{shown(key)} {i}" if isinstance(key, Opaque | CallRecord) else shown(key)


def _parts_of_call(call: CallRecord) -> Iterator[tuple[str, Any]]:
    yield from _items(call.pairs)
    yield from _elements(call.items)
    if _is_named(call.function, "collections", "OrderedDict"):
        yield from _pairs(call.args)
        return  # its state consists of the version numbers of modules
    if _is_frozen(call):
        yield from _items(call.args[0])
    elif is_named_tuple(call):
        yield from _elements(call.args)
    if is_module(call):
        for part in ("_parameters", "_buffers", "_modules"):
            yield from children(call.state.get(part))
    elif isinstance(call.state, dict):
        yield from children(call.state)


def _is_frozen(call: CallRecord) -> bool:
    """Whether the call makes a dictionary that cannot be changed: Flax's FrozenDict, Haiku's FlatMapping."""
    known = isinstance(call.function, Global) and call.function.name in (
        "FrozenDict",
        "FlatMapping",
        "mappingproxy",
    )
    return known and isinstance(call.args, tuple) and len(call.args) == 1 and isinstance(call.args[0], dict)


def is_named_tuple(value: Any) -> bool:
    """Whether the value may be a named tuple: a class of someone's own, made from positional arguments."""
    return (
        isinstance(value, CallRecord)
        and isinstance(value.function, Global)
        and not value.function.module.startswith(
            ("torch", "collections", "numpy", "jax", "flax.core", "haiku")
        )
        and isinstance(value.args, tuple)
        and len(value.args) > 0
        and value.state is None
        and not value.pairs
        and not value.items
    )


def is_module(value: Any) -> bool:
    """Whether the value is a pickled nn.Module."""
    state = value.state if isinstance(value, CallRecord) else None
    return isinstance(state, dict) and "_parameters" in state and "_modules" in state


def is_state_dict(value: Any) -> bool:
    """Whether the value is what `module.state_dict()` returns, or a module."""
    state = value.state if isinstance(value, CallRecord) else None
    return is_module(value) or (isinstance(state, dict) and "_metadata" in state)


def _pairs(args: Any) -> Iterator[tuple[str, Any]]:
    """The pairs of OrderedDict([[key, value], …]), as older Pythons wrote it with protocol 2."""
    listed = args[0] if isinstance(args, tuple) and args and isinstance(args[0], list) else []
    current_walk().count(len(listed))
    for i, pair in enumerate(listed):
        if isinstance(pair, list | tuple) and len(pair) == 2:
            yield _key_text(pair[0], i), pair[1]


def _is_named(function: Any, module: str, name: str) -> bool:
    return isinstance(function, Global) and function.module == module and function.name == name


def is_mapping(value: Any) -> bool:
    """Whether the value is a dictionary, or an object with named parts."""
    return isinstance(value, dict) or (isinstance(value, CallRecord) and parse_tensor(value) is None)


def is_optimizer(value: Any) -> bool:
    """Whether the value is what `optimizer.state_dict()` returns, or a state of Optax."""
    function = value.function if isinstance(value, CallRecord) else None
    if isinstance(function, Global) and function.module.startswith("optax."):
        return True
    if isinstance(value, dict):
        return "state" in value and "param_groups" in value
    return is_mapping(value) and {"state", "param_groups"} <= dict(children(value)).keys()


def has_tensor(value: Any) -> bool:
    """Whether there is a tensor anywhere inside; every container is looked through once."""
    walk = current_walk()
    if parse_tensor(value) is not None:
        return True
    if not _is_container(value):
        return False
    if (known := walk.has_tensor.get(id(value))) is not None:
        return known[1]
    walk.has_tensor[id(value)] = (value, False)
    open_containers = [(value, children(value))]
    while open_containers:
        _, inside = open_containers[-1]
        child = next((child for _, child in inside if _is_container(child)), None)
        if child is None:
            open_containers.pop()
            continue
        known = walk.has_tensor.get(id(child))
        if parse_tensor(child) is not None or (known is not None and known[1]):
            walk.has_tensor |= {id(each): (each, True) for each, _ in open_containers}
            return True
        if known is None:
            walk.has_tensor[id(child)] = (child, False)
            open_containers.append((child, children(child)))
    return False


def _is_container(value: Any) -> bool:
    return isinstance(value, CallRecord | dict | list | tuple)


class LeafVisitor:
    """Visits the leaves of an untrusted structure: cycles are cut, and the number of visits is limited.

    Optimizers are not entered: `optimizers` has their paths. `buffers` and `parameters` have those of the
    tensors that modules declare as such.
    """

    def __init__(self) -> None:
        self.visits = 0
        self.optimizers: list[Path] = []
        self.buffers: set[Path] = set()
        self.parameters: set[Path] = set()

    def leaves(self, value: Any, path: Path = (), above: tuple[int, ...] = ()) -> Iterator[tuple[Path, Any]]:
        """Yield the path and value of each tensor record."""
        self.visits += 1
        current_walk().count(_VISIT)
        if self.visits > _MAX_VISITS:
            raise CorruptCheckpoint(f"it has too many entries (limit {_MAX_VISITS:,})")
        if id(value) in above:
            return
        if len(path) > _MAX_DEPTH:
            raise CorruptCheckpoint(f"it is nested too deeply (limit {_MAX_DEPTH} levels)")
        if parse_tensor(value) is not None:
            yield path, value
        elif is_optimizer(value):
            self.optimizers.append(path)
        elif has_tensor(value):
            yield from self._inside(value, path, (*above, id(value)))

    def _inside(self, value: Any, path: Path, above: tuple[int, ...]) -> Iterator[tuple[Path, Any]]:
        if is_module(value):
            self.buffers |= {(*path, name) for name, _ in children(value.state.get("_buffers"))}
            self.parameters |= {(*path, name) for name, _ in children(value.state.get("_parameters"))}
        for name, child in children(value):
            if _is_container(child):
                yield from self.leaves(child, (*path, name), above)
