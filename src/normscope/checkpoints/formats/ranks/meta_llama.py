"""Meta's releases: `consolidated.00.pth`, `consolidated.01.pth`, …, one file per model-parallel rank."""

from __future__ import annotations

import re
from collections.abc import Sequence

from normscope.checkpoints.base import Checkpoint, Folder
from normscope.checkpoints.extents import Extras
from normscope.checkpoints.formats.ranks.rank_state import (
    Pieces,
    RankSource,
    joined_checkpoint,
    one_step,
    read_rank,
    skipped_by,
)
from normscope.checkpoints.formats.ranks.split_rules import META
from normscope.checkpoints.formats.ranks.tensor_parallel import TensorParallel

LAYOUT = "Meta, consolidated.NN.pth"
CONSOLIDATED = re.compile(r"consolidated\.([0-9]{2})\.(pth|pt)")
_TOOL = "transformers' convert_llama_weights_to_hf.py"


def open_consolidated(folder: Folder, files: Sequence[str]) -> Checkpoint:
    """Open the model that the ranks' files hold together."""
    numbers = [int(CONSOLIDATED.sub(r"\1", name)) for name in files]
    expected = range(max(numbers) + 1)
    source = RankSource(folder.name.rstrip("/"), LAYOUT, _TOOL)
    if missing := sorted(set(expected) - set(numbers)):
        suffix = files[0].rsplit(".", 1)[1]
        lacking = [f"consolidated.{number:02d}.{suffix}" for number in missing]
        raise source.missing(len(files), lacking)
    ranks = [read_rank(name, folder.file(name)) for name in sorted(files)]
    step = one_step(ranks, source)
    joining = TensorParallel(source, META)
    pieces = joining.join([rank.name for rank in ranks], [rank.pieces for rank in ranks])
    _refuse_incomplete(pieces, len(ranks), source)
    extras = Extras(skipped_by(ranks), step, tuple(joining.notes))
    return joined_checkpoint("meta", ranks, pieces, extras)


def _refuse_incomplete(pieces: Pieces, ranks: int, source: RankSource) -> None:
    """No name says how many ranks there are, but half of the queries show that the last ones are missing."""
    shapes = [piece.tensor.shape for name, piece in pieces.items() if name.endswith("attention.wq.weight")]
    rows, width = shapes[0] if shapes and len(shapes[0]) == 2 else (0, 0)
    if 0 < rows < width and width % rows == 0:
        count = min(100, ranks * width // rows)
        raise source.missing(ranks, [f"consolidated.{rank:02d}.pth" for rank in range(ranks, count)])
