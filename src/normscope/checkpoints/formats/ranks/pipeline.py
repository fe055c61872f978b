"""Joins the stages of a pipeline: layers are numbered through, and what two stages share counts once."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from normscope.checkpoints.formats.ranks.copies_and_parts import is_constant, same_bytes
from normscope.checkpoints.formats.ranks.rank_state import Pieces, RankSource

_LAYER = re.compile(r"((?:.*\.)?(?:layers|layer))\.([0-9]+)(\..*)")
_HEADS = re.compile(r"(?:.*\.)?(?:word_embeddings_for_head|output_layer|lm_head)\.weight")
_EMBEDDING = re.compile(r"(?:.*\.)?(?:embedding\.)?word_embeddings\.weight")


def join_stages(stages: Sequence[Pieces], source: RankSource) -> tuple[Pieces, dict[str, str]]:
    """The tensors of all stages, in the order of the network; and copies that were left out, with reasons."""
    joined: Pieces = {}
    left_out: dict[str, str] = {}
    for stage, renamed in zip(stages, _global_names(stages, source), strict=True):
        for name, piece in stage.items():
            whole = renamed.get(name, name)
            if whole not in joined:
                joined[whole] = piece.named(whole)
            elif not same_bytes([joined[whole], piece]):
                raise source.unknown(f"two stages hold different values of {whole[:200]!r}")
    if len(stages) > 1:
        left_out = dict(_tied_heads(stages, joined))
    return {name: piece for name, piece in joined.items() if name not in left_out}, left_out


def _global_names(stages: Sequence[Pieces], source: RankSource) -> list[dict[str, str]]:
    """For each stage, its names that count layers from the first of the stage → names of the whole model."""
    numbers: defaultdict[str, list[set[int]]] = defaultdict(lambda: [set() for _ in stages])
    for i, stage in enumerate(stages):
        for name in stage:
            if found := _LAYER.fullmatch(name):
                numbers[found[1]][i].add(int(found[2]))
    starts = {stack: _starts(stack, counted, source) for stack, counted in numbers.items()}
    return [
        {
            name: f"{found[1]}.{int(found[2]) + starts[found[1]][i]}{found[3]}"
            for name in stage
            if (found := _LAYER.fullmatch(name))
        }
        for i, stage in enumerate(stages)
    ]


def _starts(stack: str, counted: Sequence[set[int]], source: RankSource) -> list[int]:
    """What to add to the numbers of each stage: nothing, if they are those of the whole model already."""
    everywhere = [number for numbers in counted for number in numbers]
    if len(everywhere) == len(set(everywhere)) and set(everywhere) == set(range(len(everywhere))):
        return [0] * len(counted)
    if any(numbers != set(range(len(numbers))) for numbers in counted):
        raise source.unknown(
            f"the layers of {stack[:100]!r} are not numbered from 0 on in each stage of the pipeline"
        )
    starts, at = [], 0
    for numbers in counted:
        starts.append(at)
        at += len(numbers)
    return starts


def _tied_heads(stages: Sequence[Pieces], joined: Pieces) -> Iterator[tuple[str, str]]:
    """The last stage's copies of an embedding that the first stage holds: one parameter, stored twice."""
    embeddings = [name for name in stages[0] if _EMBEDDING.fullmatch(name)]
    for name in stages[-1]:
        if not _HEADS.fullmatch(name) or name not in joined or name in stages[0]:
            continue
        for embedding in embeddings:
            if not is_constant(joined[name]) and same_bytes([joined[name], joined[embedding]]):
                yield name, f"the copy of {embedding} that the last stage of the pipeline holds"
