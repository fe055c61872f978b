"""Load the tensors of a checkpoint, in any format, into a module."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from normscope.anatomy import unwrapped
from normscope.checkpoints.arrays import read_tensor
from normscope.checkpoints.base import Checkpoint
from normscope.checkpoints.buffer_names import buffer_by_name
from normscope.errors import ModelError
from normscope.network.running.eval_mode import evaluating
from normscope.words import some

_PREFIX = "model."  # of Lightning modules, and of other modules that keep the network in an attribute


def load_weights(
    model: nn.Module, checkpoint: Checkpoint, source: str, run: Callable[[], object] | None = None
) -> tuple[str, ...]:
    """Copy a checkpoint's tensors into a module's parameters and buffers, converted to their dtypes.

    Names match after removing the prefixes of wrappers (DDP, FSDP, torch.compile, Lightning).
    Tied parameters need only one of their names. Buffers that the checkpoint lacks keep their
    values. Any other difference is a ModelError. `run` makes one forward pass, for a module that registers
    buffers or makes parameters only then. Returns what is to be said about it.
    """
    later = _register_later(model, checkpoint, run) if run is not None else frozenset()
    stored = _stored_names(checkpoint.tensors, {unwrapped(name) for name, _ in _tensors(model)})
    used: set[str] = set()
    for tensor, names in _tied(model):
        found = [stored[name] for name in names if name in stored]
        if later.issuperset(names) and any(_other_shape(tensor, checkpoint, name) for name in found):
            continue  # a mask or table for another length, which the model has just made for its own
        used.update(found)
        if found:
            _copy(tensor, checkpoint, found, source)
        elif isinstance(tensor, nn.Parameter):
            raise ModelError(f"{source} does not fit the model: the parameter {names[0]!r} is missing")
    return tuple(_words(model, checkpoint, stored, used, later, source))


def _register_later(model: nn.Module, checkpoint: Checkpoint, run: Callable[[], object]) -> frozenset[str]:
    """Run a module once if that may register what it lacks; the names of the buffers that it then has."""
    before = {unwrapped(name) for name, _ in _tensors(model)}
    lazy = any(is_lazy(tensor) for _, tensor in _tensors(model))
    if not lazy and _stored_names(checkpoint.tensors, before).keys() <= before:
        return frozenset()
    with suppress(Exception), evaluating(model):  # if it fails, loading says what is missing
        run()
    return frozenset(unwrapped(name) for name, _ in model.named_buffers(remove_duplicate=False)) - before


def _other_shape(tensor: Tensor, checkpoint: Checkpoint, name: str) -> bool:
    return tuple(checkpoint.tensors[name].shape) != tuple(tensor.shape)


def _words(
    model: nn.Module,
    checkpoint: Checkpoint,
    stored: Mapping[str, str],
    used: set[str],
    later: frozenset[str],
    source: str,
) -> Iterator[str]:
    """What to say about buffers; a parameter that was not used is a ModelError."""
    unused = {name: key for name, key in stored.items() if key not in used}
    known = later | _empty_buffers(model)
    _refuse_unused(checkpoint, {key for name, key in unused.items() if name not in known}, source)
    if loaded := sorted(name for name in later if stored.get(name) in used):
        yield f"{some(loaded)}: loaded into buffers that the model registers in its first forward pass"
    if unused:
        yield f"stored buffers are not used, the model computes its own: {some(sorted(unused))}"


def _empty_buffers(model: nn.Module) -> set[str]:
    """Buffers that are registered as None, to be filled later."""
    return {
        unwrapped(f"{path}.{name}" if path else name)
        for path, module in model.named_modules()
        for name, value in module._buffers.items()
        if value is None
    }


def _stored_names(stored: Iterable[str], expected: set[str]) -> dict[str, str]:
    """The checkpoint's names by the names that the module gives them."""
    names: dict[str, str] = {}
    for name in stored:
        if (other := names.setdefault(unwrapped(name), name)) != name:
            raise ModelError(
                f"the checkpoint has both {other!r} and {name!r}, which are one parameter of the model: "
                "remove one of them"
            )
    if not expected & names.keys() and all(name.startswith(_PREFIX) for name in names):
        return {unwrapped(name.removeprefix(_PREFIX)): original for name, original in names.items()}
    return names


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _tied(model: nn.Module) -> Iterator[tuple[Tensor, list[str]]]:
    """Every parameter and buffer once, with all of its names."""
    names: dict[Hashable, list[str]] = {}
    tensors: dict[Hashable, Tensor] = {}
    for name, tensor in _tensors(model):
        key = _memory_key(tensor)
        tensors.setdefault(key, tensor)
        names.setdefault(key, []).append(unwrapped(name))
    return ((tensor, names[key]) for key, tensor in tensors.items())


def _memory_key(tensor: Tensor) -> Hashable:
    """Equal for tensors that are the same memory; tensors without memory (empty, meta) are all different."""
    address = tensor.data_ptr()
    return (address, tensor.shape, tensor.stride()) if address else id(tensor)


def _copy(target: Tensor, checkpoint: Checkpoint, names: list[str], source: str) -> None:
    """Copy the tensor of these names; if they are tied in the module, the checkpoint must agree."""
    shape = checkpoint.tensors[names[0]].shape
    if shape != tuple(target.shape):
        raise ModelError(
            f"{source} does not fit the model: {names[0]!r} has the shape {list(shape)} in the checkpoint "
            f"and {list(target.shape)} in the model"
        )
    value = read_tensor(checkpoint, names[0])
    for other in names[1:]:
        if not _same(checkpoint, names[0], other, value):
            raise ModelError(
                f"{source} does not fit the model: {names[0]!r} and {other!r} are one parameter in the model "
                "and two different ones in the checkpoint"
            )
    with torch.no_grad():
        target.copy_(value)


def _same(checkpoint: Checkpoint, name: str, other: str, value: Tensor) -> bool:
    shared = checkpoint.tensors[name].storage == checkpoint.tensors[other].storage
    return shared or torch.equal(read_tensor(checkpoint, other), value)


def _refuse_unused(checkpoint: Checkpoint, unused: set[str], source: str) -> None:
    """ModelError if the checkpoint has parameters that the model lacks: it would be another network."""
    names = sorted(name for name in unused if buffer_by_name(name, checkpoint.tensors[name].shape) is None)
    if names:
        raise ModelError(f"{source} does not fit the model, which has no {some(names)}")
