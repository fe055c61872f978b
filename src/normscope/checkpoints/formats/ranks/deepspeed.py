"""DeepSpeed: a folder per step, named `global_step1000` or by the trainer, with the files of all ranks.

    mp_rank_00_model_states.pt                      the module, by tensor-parallel rank (ZeRO 0, 1 and 2)
    zero_pp_rank_0_mp_rank_00_model_states.pt       its description only, by data-parallel rank (ZeRO 3)
    zero_pp_rank_0_mp_rank_00_optim_states.pt       a partition of the fp32 weights and moments (any ZeRO)
    layer_03-model_00-model_states.pt               a layer of a pipeline, by tensor-parallel rank

Source: deepspeed/runtime/engine.py and deepspeed/utils/zero_to_fp32.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from normscope.checkpoints.base import Checkpoint, Folder
from normscope.checkpoints.extents import Extras
from normscope.checkpoints.formats.ranks.pipeline_layers import LAYER_FILE, open_pipeline_layers
from normscope.checkpoints.formats.ranks.rank_state import (
    RankSource,
    RankState,
    joined_checkpoint,
    one_step,
    skipped_by,
    state_of,
)
from normscope.checkpoints.formats.ranks.split_rules import MEGATRON
from normscope.checkpoints.formats.ranks.tensor_parallel import TensorParallel
from normscope.checkpoints.formats.ranks.zero_files import ZeroPartitions, read_partitions, zero3_state
from normscope.checkpoints.formats.torch.archives import PickledFile, read_pickled
from normscope.checkpoints.formats.torch.nested_values import children, is_mapping
from normscope.words import natural_key

_MODEL = re.compile(r"(?:zero_pp_rank_([0-9]+)_)?mp_rank_([0-9]{2})_model_states\.pt")
_OPTIMIZER = re.compile(r"(?:[a-z0-9]+_)?zero_pp_rank_([0-9]+)_mp_rank_([0-9]{2})_optim_states\.pt")
_EXPERTS = re.compile(r"(?:layer_[0-9]+_)?expert_[0-9]+_mp_rank_[0-9]{2}_model_states\.pt")
_TOOL = "DeepSpeed's zero_to_fp32.py"


def is_deepspeed(folder: Folder) -> bool:
    """Whether the folder has the files of DeepSpeed's ranks."""
    names = folder.names()
    if any(_MODEL.fullmatch(name) or LAYER_FILE.fullmatch(name) for name in names):
        return True
    others = any(name.endswith((".safetensors", ".bin", ".pth")) for name in names)
    return any(map(_OPTIMIZER.fullmatch, names)) and not others


def open_deepspeed(folder: Folder) -> Checkpoint:
    """Open the model that the ranks hold together."""
    where, names = folder.name.rstrip("/"), sorted(folder.names(), key=natural_key)
    if any(map(LAYER_FILE.fullmatch, names)):
        return open_pipeline_layers(folder, [name for name in names if _MODEL.fullmatch(name)])
    source = RankSource(where, "DeepSpeed", _TOOL)
    if not any(map(_MODEL.fullmatch, names)):
        raise source.error(
            "it has only the optimizer's partitions; the files *_model_states.pt, which say their names and "
            f"shapes, are missing. Copy all of it, or convert it where it is complete, with {_TOOL}."
        )
    if any(map(_EXPERTS.fullmatch, names)):
        raise source.unknown("its experts are in files of their own (DeepSpeed MoE)")
    notes: list[str] = []
    states = [_read_rank(folder, rank, source, notes) for rank in _tensor_ranks(names)]
    size = states[0].settings.get("mp_world_size")
    if type(size) is int and len(states) < size <= 4096:
        present = {state.name for state in states}
        lacking = [f"mp_rank_{i:02d}" for i in range(size)]
        raise source.missing(len(states), [name for name in lacking if name not in present])
    step = one_step(states, source)
    joining = TensorParallel(source, MEGATRON, notes=notes)
    pieces = joining.join([state.name for state in states], [state.pieces for state in states])
    buffers = frozenset(name for state in states for name in state.buffers)
    extras = Extras(skipped_by(states), step, tuple(dict.fromkeys(notes)), buffers)
    return joined_checkpoint("deepspeed", states, pieces, extras)


def _tensor_ranks(names: Sequence[str]) -> list[str]:
    return sorted({found[2] for name in names if (found := _MODEL.fullmatch(name))})


def _read_rank(folder: Folder, rank: str, source: RankSource, notes: list[str]) -> RankState:
    """One tensor-parallel rank: the fp32 weights of its data-parallel ranks, or the module's own."""
    names = sorted(folder.names(), key=natural_key)
    models = [n for n in names if (found := _MODEL.fullmatch(n)) and found[2] == rank]
    partitions = [n for n in names if (found := _OPTIMIZER.fullmatch(n)) and found[2] == rank]
    divided = [name for name in models if name.startswith("zero")]
    name = f"mp_rank_{rank}"
    if divided:
        return _read_zero3(folder, name, divided, partitions, source)
    pickled = read_pickled(folder.file(models[0]))
    state = _with_step(state_of(name, pickled), pickled)
    optimizers = [read_pickled(folder.file(each)) for each in partitions]
    weights = read_partitions(pickled, optimizers, source)
    if isinstance(weights, str):
        notes.append(f"the weights of the module are read: {weights}")
    return _in_full_precision(state, weights, notes) if isinstance(weights, ZeroPartitions) else state


def _in_full_precision(state: RankState, found: ZeroPartitions, notes: list[str]) -> RankState:
    """The state with the optimizer's fp32 weights in the place of the module's."""
    stored = {state.pieces[name].tensor.dtype for name in found.pieces if name in state.pieces}
    if halves := sorted(stored - {"float32"}):
        notes.append(
            f"the optimizer's float32 weights are read, not the module's copies in {', '.join(halves)}"
        )
    pieces = {name: found.pieces.get(name, piece) for name, piece in state.pieces.items()}
    return replace(state, pieces={**pieces, **found.pieces}, files=(state.file, *found.files))


def _read_zero3(
    folder: Folder, name: str, divided: Sequence[str], partitions: Sequence[str], source: RankSource
) -> RankState:
    numbers = {int(found[1]) for each in divided if (found := _MODEL.fullmatch(each)) and found[1]}
    held = {int(found[1]) for each in partitions if (found := _OPTIMIZER.fullmatch(each))}
    first = read_pickled(folder.file(divided[0]))
    size = dict(children(first.pickle.value)).get("dp_world_size") if is_mapping(first.pickle.value) else None
    count = size if type(size) is int and 0 < size <= 1 << 16 else max(numbers | held) + 1
    if lacking := [i for i in range(count) if i not in held]:
        missing = [f"zero_pp_rank_{i}_{name}_optim_states.pt" for i in lacking]
        raise source.missing(len(held), missing)
    models = [first, *(read_pickled(folder.file(each)) for each in divided[1:])]
    optimizers = [read_pickled(folder.file(each)) for each in partitions]
    return _with_step(zero3_state(name, models, optimizers, source), first)


def _with_step(state: RankState, pickled: PickledFile) -> RankState:
    """The state with the step that DeepSpeed counts, which is beside the module."""
    value: Any = pickled.pickle.value
    entries = dict(children(value)) if is_mapping(value) else {}
    step = entries.get("global_steps")
    return replace(state, step=step) if type(step) is int and 0 <= step < 1 << 62 else state
