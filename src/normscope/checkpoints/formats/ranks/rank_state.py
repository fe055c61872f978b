"""What one rank stored: its tensors, where their bytes are, and the settings of the training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from normscope.checkpoints.base import Checkpoint, File, Tensor, quoted
from normscope.checkpoints.extents import Extent, Extras, TableCheckpoint
from normscope.checkpoints.formats.torch.archives import PickledFile, read_pickled
from normscope.checkpoints.formats.torch.nested_values import children, is_mapping
from normscope.checkpoints.formats.torch.pickles import open_models
from normscope.checkpoints.formats.torch.state_dicts import find_model
from normscope.errors import CheckpointError
from normscope.words import some


@dataclass(frozen=True)
class StoredPiece:
    """A tensor as one rank stored it, and its bytes."""

    tensor: Tensor
    extent: Extent

    def named(self, name: str) -> StoredPiece:
        """The same bytes under another name."""
        return replace(self, tensor=replace(self.tensor, name=name))


Pieces = dict[str, StoredPiece]
Held = Mapping[str, Sequence[StoredPiece]]
"""Name → what each rank holds of it."""
COPY_ALL = "Copy all ranks of one checkpoint."


@dataclass(frozen=True)
class RankSource:
    """A checkpoint that ranks share, for messages: where it is, its layout, and the tool that converts it."""

    where: str
    layout: str
    tool: str

    def error(self, problem: str) -> CheckpointError:
        """An error that says where, and of which layout the checkpoint is."""
        return CheckpointError(f"{self.where} ({self.layout}): {problem}")

    def unknown(self, problem: str) -> CheckpointError:
        """An error for what this version cannot read; it names the tool that converts it."""
        return self.error(f"{problem}, which is not read. Convert it with {self.tool} first.")

    def missing(self, present: int, names: Sequence[str]) -> CheckpointError:
        """The error for a checkpoint of which some files are not there."""
        verb = "is" if len(names) == 1 else "are"
        return self.error(
            f"of {present + len(names)} ranks, {some(quoted(names))} {verb} missing. Copy all of it, or "
            f"convert it where it is complete, with {self.tool}."
        )


@dataclass(frozen=True)
class RankState:
    """The model in one rank's file, called `name` in messages; `settings` are the other entries."""

    name: str
    file: File
    pieces: Pieces
    skipped: Mapping[str, str] = field(default_factory=dict)
    step: int | None = None
    buffers: frozenset[str] = frozenset()
    settings: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[File, ...] = ()
    """All files that the tensors are in, if there are others besides `file`."""


def read_rank(name: str, file: File) -> RankState:
    """Read the file of one rank; nothing in it is run."""
    return state_of(name, read_pickled(file))


def state_of(name: str, pickled: PickledFile) -> RankState:
    """The model in a file that has been read."""
    model = find_model(pickled.pickle, pickled.file.name)
    table = open_models([(pickled.file, model, pickled.locate)])
    value = pickled.pickle.value
    settings = dict(children(value)) if is_mapping(value) else {}
    return RankState(name, pickled.file, pieces_of(table), table.skipped, table.step, table.buffers, settings)


def pieces_of(table: TableCheckpoint) -> Pieces:
    """The tensors of a checkpoint with their bytes."""
    return {name: StoredPiece(tensor, table.extents[name]) for name, tensor in table.tensors.items()}


def one_step(ranks: Sequence[RankState], source: RankSource) -> int | None:
    """The step that the ranks store; CheckpointError if they are of several steps."""
    steps: dict[int, str] = {}
    for rank in ranks:
        if rank.step is not None:
            steps.setdefault(rank.step, rank.name)
    if len(steps) > 1:
        listed = some([f"{name} of step {step}" for step, name in steps.items()])
        raise source.error(f"its ranks are of different steps: {listed}. Copy all ranks of one step.")
    return next(iter(steps), None)


def joined_checkpoint(layout: str, ranks: Sequence[RankState], pieces: Pieces, extras: Extras) -> Checkpoint:
    """One checkpoint of what the ranks hold together."""
    return TableCheckpoint(
        layout,
        [file for rank in ranks for file in rank.files or (rank.file,)],
        {name: piece.tensor for name, piece in pieces.items()},
        {name: piece.extent for name, piece in pieces.items()},
        extras,
    )


def skipped_by(ranks: Iterable[RankState]) -> dict[str, str]:
    """What the ranks contain besides the model, with the reasons."""
    return {name: why for rank in ranks for name, why in rank.skipped.items()}


def stored_iteration(file: File) -> int | None:
    """The iteration in a file of a trainer's state; None if it has none."""
    value = read_pickled(file).pickle.value
    step = dict(children(value)).get("iteration") if is_mapping(value) else None
    return step if type(step) is int and 0 <= step < 1 << 62 else None
