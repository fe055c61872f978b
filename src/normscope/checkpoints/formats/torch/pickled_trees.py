"""Models that people pickle with JAX and NumPy: nested dictionaries, lists and named tuples of arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from normscope.checkpoints.base import Tensor
from normscope.checkpoints.formats.flax.nnx_states import untrained
from normscope.checkpoints.formats.flax.trees import find_flax_model
from normscope.checkpoints.formats.model_entries import no_parameters
from normscope.checkpoints.formats.torch.nested_values import (
    LeafVisitor,
    Path,
    children,
    has_tensor,
    is_named_tuple,
    is_optimizer,
    one_walk,
)
from normscope.checkpoints.formats.torch.pickle_values import Pickle
from normscope.checkpoints.formats.torch.records import TensorRecord, parse_tensor
from normscope.checkpoints.formats.torch.state_dicts import ModelState, find_step
from normscope.checkpoints.slot_names import OPTIMIZER
from normscope.errors import CheckpointError, CorruptCheckpoint


def find_tree(pickle: Pickle, where: str) -> ModelState:
    """Find the model in a pickled tree of arrays; CheckpointError if nothing says which part it is."""
    try:
        with one_walk():
            return _collect(pickle.value, where)
    except CorruptCheckpoint as error:
        raise CorruptCheckpoint(f"{where}: {error}. Copy or save it again.") from None


def _collect(root: Any, where: str) -> ModelState:
    state = ModelState(step=find_step(root))
    visitor = LeafVisitor()
    found = dict(visitor.leaves(_main_part(root, state, where)))
    model = find_flax_model(found)
    state.skipped |= {".".join(path): OPTIMIZER for path in visitor.optimizers} | dict(model.skipped)
    for path, name in model.names.items():
        record = parse_tensor(found[path])
        if isinstance(record, TensorRecord):
            state.tensors[name] = record
        elif record is not None:
            state.skipped[name] = record
    for name, reason in _untrained(state.tensors).items():
        del state.tensors[name]
        state.skipped[name] = reason
    state.networks = model.networks
    if not state.tensors:
        raise no_parameters(where, state.skipped)
    return state


def _untrained(records: Mapping[str, TensorRecord]) -> dict[str, str]:
    return untrained({name: Tensor(name, r.shape, r.dtype, name) for name, r in records.items()})


def _main_part(root: Any, state: ModelState, where: str) -> Any:
    """The tree with the parameters, of a tuple of several: its parts have no names, only positions."""
    if not isinstance(root, tuple) and not is_named_tuple(root):
        return root
    parts = {name: child for name, child in children(root) if has_tensor(child)}
    kept = {}
    for name, child in parts.items():
        if is_optimizer(child) or _all_optimizers(child):
            state.skipped[name] = OPTIMIZER
        else:
            kept[name] = child
    if len(kept) == 1 and parse_tensor(next(iter(kept.values()))) is None:
        return next(iter(kept.values()))
    _refuse_alike(kept, where)
    return kept


def _all_optimizers(value: Any) -> bool:
    inside = (
        [child for _, child in children(value) if has_tensor(child)]
        if isinstance(value, tuple | list)
        else []
    )
    return bool(inside) and all(is_optimizer(child) or _all_optimizers(child) for child in inside)


def _refuse_alike(parts: Mapping[str, Any], where: str) -> None:
    """CheckpointError if several parts have the same names and shapes: averages and moments do."""
    groups: defaultdict[frozenset[tuple[Path, tuple[int, ...]]], list[str]] = defaultdict(list)
    for name, part in parts.items():
        leaves = [(path, parse_tensor(leaf)) for path, leaf in LeafVisitor().leaves(part)]
        shapes = frozenset(
            (path, record.shape) for path, record in leaves if isinstance(record, TensorRecord)
        )
        if any(not word.isdigit() for path, _ in shapes for word in path):
            groups[shapes].append(name)
    if alike := next((names for names in groups.values() if len(names) > 1), None):
        raise CheckpointError(
            f"{where} is a tuple whose parts {', '.join(alike[:5])} have the same names and shapes; nothing "
            "says which are the parameters, and which an average or moments. Pickle the parameters alone, "
            "or as {'params': …}."
        )
