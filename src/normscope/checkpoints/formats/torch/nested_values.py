"""Walks through what a pickle contains: dictionaries, lists, modules, objects of unknown classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from normscope.checkpoints.formats.torch.pickle_values import CallRecord, Global
from normscope.checkpoints.formats.torch.records import parse_tensor
from normscope.errors import CorruptCheckpoint

_MAX_DEPTH, _MAX_VISITS = 32, 300_000

Path = tuple[str, ...]


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
    if is_module(call):
        for part in ("_parameters", "_buffers", "_modules"):
            yield from children(call.state.get(part))
    elif isinstance(call.state, dict):
        yield from children(call.state)


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
    for pair in listed:
        if isinstance(pair, list | tuple) and len(pair) == 2:
            yield str(pair[0]), pair[1]


def _is_named(function: Any, module: str, name: str) -> bool:
    return isinstance(function, Global) and function.module == module and function.name == name


def is_mapping(value: Any) -> bool:
    """Whether the value is a dictionary, or an object with named parts."""
    return isinstance(value, dict) or (isinstance(value, CallRecord) and parse_tensor(value) is None)


def is_optimizer(value: Any) -> bool:
    """Whether the value is what `optimizer.state_dict()` returns."""
    return is_mapping(value) and {"state", "param_groups"} <= dict(children(value)).keys()


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
        if self.visits > _MAX_VISITS:
            raise CorruptCheckpoint(f"it has too many entries (limit {_MAX_VISITS:,})")
        if id(value) in above or len(path) > _MAX_DEPTH:
            return
        if parse_tensor(value) is not None:
            yield path, value
        elif is_optimizer(value):
            self.optimizers.append(path)
        else:
            yield from self._inside(value, path, (*above, id(value)))

    def _inside(self, value: Any, path: Path, above: tuple[int, ...]) -> Iterator[tuple[Path, Any]]:
        if is_module(value):
            self.buffers |= {(*path, name) for name, _ in children(value.state.get("_buffers"))}
            self.parameters |= {(*path, name) for name, _ in children(value.state.get("_parameters"))}
        for name, child in children(value):
            if isinstance(child, CallRecord | dict | list | tuple):
                yield from self.leaves(child, (*path, name), above)
