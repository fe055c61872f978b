"""Megatron-LM and Megatron-Core, `--ckpt-format torch`: a folder per rank in the folder of an iteration.

`iter_0001000/mp_rank_TT/model_optim_rng.pt`, with `_PPP` for pipelines and `_EEE` for experts. A pipeline
with virtual stages stores each stage's chunks as `model0`, `model1`, …; chunk v of stage s comes after
chunk v of stage s − 1. Source: get_checkpoint_name in Megatron-LM's megatron/training/checkpointing.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from normscope.checkpoints.base import Checkpoint, Folder
from normscope.checkpoints.extents import Extras
from normscope.checkpoints.formats.ranks.experts import join_experts
from normscope.checkpoints.formats.ranks.pipeline import join_stages
from normscope.checkpoints.formats.ranks.rank_state import (
    Pieces,
    RankSource,
    RankState,
    joined_checkpoint,
    one_step,
    read_rank,
    skipped_by,
)
from normscope.checkpoints.formats.ranks.split_rules import MEGATRON
from normscope.checkpoints.formats.ranks.tensor_parallel import TensorParallel
from normscope.checkpoints.formats.torch.pickle_values import CallRecord
from normscope.errors import CheckpointError
from normscope.words import some

LAYOUT = "Megatron, mp_rank_NN folders"
_RANK = re.compile(r"mp_rank_([0-9]{2})(?:_([0-9]{3}))?(?:_([0-9]{3}))?/")
_FILES = ("model_optim_rng.pt", "model_rng.pt")
_CHUNK = re.compile(r"model([0-9]+)\.(.+)")
_TOOL = "Megatron-LM's tools/checkpoint/convert.py"
_MOST = 4096
"""A size of a parallel group beyond which it is not believed."""


@dataclass(frozen=True, order=True)
class RankPlace:
    """The tensor-parallel, pipeline and expert rank of a folder."""

    tensor: int
    stage: int
    expert: int


def is_megatron(folder: Folder) -> bool:
    """Whether the folder contains one folder per rank, as Megatron names them."""
    return any(_RANK.fullmatch(name) for name in folder.names())


def open_megatron(folder: Folder) -> Checkpoint:
    """Open the model that the ranks in the folder of an iteration hold together."""
    source = RankSource(folder.name.rstrip("/"), LAYOUT, _TOOL)
    names = [name for name in folder.names() if _RANK.fullmatch(name)]
    ranks = {name: _read(folder, name) for name in names}
    grid = _grid(source, ranks)
    step = one_step(list(ranks.values()), source)
    joining = TensorParallel(source, MEGATRON, sections=_sections(next(iter(ranks.values()))))
    stages = [_join_stage(grid, stage, joining) for stage in sorted({place.stage for place in grid})]
    pieces, tied = join_stages(_in_order(stages, source), source)
    ordered = [grid[place] for place in sorted(grid)]
    extras = Extras({**skipped_by(ordered), **tied}, step, tuple(dict.fromkeys(joining.notes)))
    return joined_checkpoint("megatron", ordered, pieces, extras)


def _read(folder: Folder, name: str) -> RankState:
    inside = folder.folder(name)
    files = [file for file in _FILES if file in inside.names()]
    if not files:
        raise CheckpointError(
            f"{inside.name.rstrip('/')} should hold one rank's {_FILES[0]} ({LAYOUT}), but has only "
            f"{some(inside.names()) or 'nothing'}. Copy all of the checkpoint."
        )
    return read_rank(name.rstrip("/"), inside.file(files[0]))


def _grid(source: RankSource, ranks: Mapping[str, RankState]) -> dict[RankPlace, RankState]:
    """Each rank at its place; CheckpointError unless all places are taken."""
    settings = _arguments(next(iter(ranks.values())))
    places = {_place(name, settings): rank for name, rank in ranks.items()}
    sizes = [max(getattr(place, axis) for place in places) + 1 for axis in ("tensor", "stage", "expert")]
    said = [settings.get(key, 1) for key in ("tensor", "stage", "expert")]
    if settings.get("expert_tensor", sizes[0]) != sizes[0]:
        sides = f"{settings['expert_tensor']} ranks, the rest between {sizes[0]}"
        raise source.unknown(f"its experts are divided between {sides}")
    expected = [max(pair) for pair in zip(sizes, said, strict=True)]
    missing = [place for each in product(*map(range, expected)) if (place := RankPlace(*each)) not in places]
    if missing:
        form = next(iter(ranks)).count("_")
        listed = [_name(place, form, expected) for place in missing]
        raise source.missing(len(places), listed)
    return places


def _place(name: str, settings: Mapping[str, int]) -> RankPlace:
    """A lone second number is a stage, unless the settings say that there is one stage and many experts."""
    found = _RANK.fullmatch(name)
    assert found is not None
    tensor, second, third = (int(number or 0) for number in found.groups())
    if found[3] is None and settings.get("expert", 1) > 1 and settings.get("stage", 1) == 1:
        return RankPlace(tensor, 0, second)
    return RankPlace(tensor, second, third)


def _name(place: RankPlace, form: int, sizes: Sequence[int]) -> str:
    if form == 2:
        return f"mp_rank_{place.tensor:02d}"
    if form == 3:
        return f"mp_rank_{place.tensor:02d}_{place.stage if sizes[1] > 1 else place.expert:03d}"
    return f"mp_rank_{place.tensor:02d}_{place.stage:03d}_{place.expert:03d}"


def _arguments(rank: RankState) -> dict[str, int]:
    """The sizes of the parallel groups, from the arguments of the training that Megatron stores."""
    stored = rank.settings.get("args")
    attributes: Any = stored.state if isinstance(stored, CallRecord) else stored
    keys = {
        "tensor": "tensor_model_parallel_size",
        "stage": "pipeline_model_parallel_size",
        "expert": "expert_model_parallel_size",
        "expert_tensor": "expert_tensor_parallel_size",
    }
    values = {
        key: attributes.get(name) if isinstance(attributes, dict) else None for key, name in keys.items()
    }
    return {key: value for key, value in values.items() if type(value) is int and 0 < value <= _MOST}


def _sections(rank: RankState) -> int:
    """Files before version 1.0 store all queries, then all keys, then all values of a rank."""
    version = rank.settings.get("checkpoint_version", 3.0)
    return 3 if isinstance(version, int | float) and version < 1 else 1


def _join_stage(grid: Mapping[RankPlace, RankState], stage: int, joining: TensorParallel) -> Pieces:
    """What the ranks of one stage hold together: experts first, then tensor-parallel parts."""
    tensors = sorted({place.tensor for place in grid})
    joined, names = [], []
    for tensor in tensors:
        group = [grid[place] for place in sorted(grid) if (place.tensor, place.stage) == (tensor, stage)]
        names.append(group[0].name)
        joined.append(join_experts(group, joining.source, joining.notes))
    return joining.join(names, joined)


def _in_order(stages: Sequence[Pieces], source: RankSource) -> list[Pieces]:
    """The chunks of all stages in the order of the network; without virtual stages, each stage is one."""
    chunks: list[dict[int, Pieces]] = []
    for stage in stages:
        found: dict[int, Pieces] = {}
        for name, piece in stage.items():
            chunk = _CHUNK.fullmatch(name)
            number, inner = (int(chunk[1]), chunk[2]) if chunk else (0, name)
            found.setdefault(number, {})[inner] = piece.named(inner)
        chunks.append(found)
    counts = {len(found) for found in chunks}
    if len(counts) > 1 or any(set(found) != set(range(len(found))) for found in chunks):
        raise source.unknown("the stages of the pipeline have different chunks (model0, model1, …)")
    return [found[number] for number in range(counts.pop()) for found in chunks]
