"""GPT-NeoX and Megatron-DeepSpeed: a file per layer of the pipeline and tensor-parallel rank.

`layer_03-model_01-model_states.pt` is what rank 1 holds of layer 3 of the pipeline. Embedding and final
norm are layers of it too, and some layers have no parameters and no file; the layers of the model are counted
from 0. Source: PipelineModule.ckpt_layer_path in deepspeed/runtime/pipe/module.py, and gpt-neox's
megatron/checkpointing.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product

from normscope.checkpoints.base import Checkpoint, Folder
from normscope.checkpoints.extents import Extras
from normscope.checkpoints.formats.ranks.copies_and_parts import same_bytes
from normscope.checkpoints.formats.ranks.rank_state import (
    Pieces,
    RankSource,
    RankState,
    joined_checkpoint,
    read_rank,
    skipped_by,
)
from normscope.checkpoints.formats.ranks.split_rules import MEGATRON
from normscope.checkpoints.formats.ranks.tensor_parallel import TensorParallel
from normscope.checkpoints.formats.ranks.zero_files import entries_at
from normscope.checkpoints.formats.torch.archives import read_pickled

LAYOUT = "DeepSpeed pipeline, layer_NN-model_NN files"
LAYER_FILE = re.compile(r"layer_([0-9]{2,})-model_([0-9]{2})-model_states\.pt")
_INSIDE = re.compile(r"(?:.*[._])?(?:attention|mlp|self_attn)\..*")
_TOOL = "gpt-neox's tools/ckpts/convert_neox_to_hf.py"
_BARE = frozenset(("weight", "bias", "scale"))


def open_pipeline_layers(folder: Folder, beside: Sequence[str]) -> Checkpoint:
    """Open the model whose layers are files; `beside` are the files with the state of the training."""
    source = RankSource(folder.name.rstrip("/"), LAYOUT, _TOOL)
    matches = [found for name in folder.names() if (found := LAYER_FILE.fullmatch(name))]
    places = {(int(found[1]), int(found[2])): found[0] for found in matches}
    settings = entries_at(read_pickled(folder.file(beside[0])).pickle.value) if beside else {}
    arguments = entries_at(settings.get("args"))
    _refuse_missing(source, places, arguments.get("model_parallel_size", settings.get("mp_world_size")))
    ranks = {place: read_rank(name, folder.file(name)) for place, name in sorted(places.items())}
    joining = TensorParallel(source, MEGATRON)
    layers = {layer: _join_layer(ranks, layer, joining) for layer in sorted({layer for layer, _ in ranks})}
    inner = [layer for layer, pieces in layers.items() if any(map(_INSIDE.fullmatch, pieces))]
    if inner != list(range(min(inner, default=0), max(inner, default=-1) + 1)):
        gone = sorted(set(range(inner[0], inner[-1] + 1)) - set(inner))
        raise source.missing(len(layers), [f"layer_{layer:02d}-model_00-model_states.pt" for layer in gone])
    count = arguments.get("num_layers")
    if type(count) is int and count != len(inner):
        raise source.error(f"it has {len(inner)} layers, but was trained with {count}. Copy all of it.")
    extras = Extras(skipped_by(ranks.values()), _step(settings), tuple(dict.fromkeys(joining.notes)))
    pieces = _named(layers, inner, source)
    return joined_checkpoint("deepspeed-pipeline", list(ranks.values()), pieces, extras)


def _refuse_missing(source: RankSource, places: Mapping[tuple[int, int], str], size: object) -> None:
    """Every layer must have a file of every tensor-parallel rank."""
    count = max(rank for _, rank in places) + 1
    if type(size) is int and count < size <= 4096:
        count = size
    expected = product(sorted({layer for layer, _ in places}), range(count))
    missing = [place for place in expected if place not in places]
    if missing:
        listed = [f"layer_{layer:02d}-model_{rank:02d}-model_states.pt" for layer, rank in missing]
        raise source.missing(len(places), listed)


def _join_layer(ranks: Mapping[tuple[int, int], RankState], layer: int, joining: TensorParallel) -> Pieces:
    own = [rank for (number, _), rank in ranks.items() if number == layer]
    return joining.join([rank.name for rank in own], [rank.pieces for rank in own])


def _named(layers: Mapping[int, Pieces], inner: Sequence[int], source: RankSource) -> Pieces:
    """All tensors, under the names that they would have in one module."""
    pieces: Pieces = {}
    for layer, held in layers.items():
        for name, piece in held.items():
            whole = f"layers.{layer - inner[0]}.{name}" if layer in inner else _outside(name, layer, inner)
            if whole in pieces and not same_bytes([pieces[whole], piece]):
                whole = f"layer_{layer:02d}.{name}"
            if whole not in pieces:
                pieces[whole] = piece.named(whole)
    if not inner:
        raise source.unknown("none of its files holds the attention or MLP of a layer")
    return pieces


def _outside(name: str, layer: int, inner: Sequence[int]) -> str:
    """A norm that is a layer of the pipeline by itself has no name of its own."""
    last = bool(inner) and layer > inner[-1]
    return f"final_layernorm.{name}" if name in _BARE and last else name


def _step(settings: Mapping[str, object]) -> int | None:
    step = settings.get("iteration", settings.get("global_steps"))
    return step if type(step) is int and 0 <= step < 1 << 62 else None
