"""A checkpoint under the names that the other checkpoints of its series have for the same tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from normscope.checkpoints.base import Borrowed, Buffer, Checkpoint, StoredRange


class RenamedCheckpoint(Checkpoint):
    """Another checkpoint, some of whose tensors are renamed: `names` maps stored names to new ones."""

    def __init__(self, checkpoint: Checkpoint, names: Mapping[str, str]) -> None:
        self._checkpoint = checkpoint
        self._stored = {new: stored for stored, new in names.items()}
        self.format, self.step, self.notes = checkpoint.format, checkpoint.step, checkpoint.notes
        self.skipped, self.networks = checkpoint.skipped, checkpoint.networks
        self.buffers = frozenset(names.get(name, name) for name in checkpoint.buffers)
        self.parameters = frozenset(names.get(name, name) for name in checkpoint.parameters)
        self.tensors = {
            names.get(name, name): replace(tensor, name=names.get(name, name))
            for name, tensor in checkpoint.tensors.items()
        }

    def stored_name(self, name: str) -> str:
        """The tensor's name in the file."""
        return self._stored.get(name, name)

    @property
    def nbytes(self) -> int:
        """Total size of its files, measured or not."""
        return self._checkpoint.nbytes

    @property
    def digest(self) -> str:
        """The digest of the checkpoint, whatever its names are."""
        return self._checkpoint.digest

    @property
    def stamp(self) -> str | None:
        """Same as Checkpoint.stamp."""
        return self._checkpoint.stamp

    def read(self, name: str, start: int, stop: int) -> Buffer:
        """Same as Checkpoint.read."""
        return self._checkpoint.read(self.stored_name(name), start, stop)

    def borrow(self, name: str, start: int, stop: int, mapped: bool = True) -> Borrowed:
        """Same as Checkpoint.borrow."""
        return self._checkpoint.borrow(self.stored_name(name), start, stop, mapped)

    def check_unchanged(self) -> None:
        """Same as Checkpoint.check_unchanged."""
        self._checkpoint.check_unchanged()

    def check_not_rewritten(self) -> None:
        """Same as Checkpoint.check_not_rewritten."""
        self._checkpoint.check_not_rewritten()

    def zero_copy(self, name: str) -> bool:
        """Same as Checkpoint.zero_copy."""
        return self._checkpoint.zero_copy(self.stored_name(name))

    def read_granularity(self, name: str) -> int:
        """Same as Checkpoint.read_granularity."""
        return self._checkpoint.read_granularity(self.stored_name(name))

    def stored_range(self, name: str, start: int, stop: int) -> StoredRange | None:
        """Same as Checkpoint.stored_range."""
        return self._checkpoint.stored_range(self.stored_name(name), start, stop)

    def sequential(self, name: str) -> bool:
        """Same as Checkpoint.sequential."""
        return self._checkpoint.sequential(self.stored_name(name))

    def drop(self, name: str, start: int, stop: int) -> None:
        """Same as Checkpoint.drop."""
        self._checkpoint.drop(self.stored_name(name), start, stop)

    def close(self) -> None:
        """Release its files."""
        self._checkpoint.close()


def as_stored(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint under the names of its file."""
    return checkpoint._checkpoint if isinstance(checkpoint, RenamedCheckpoint) else checkpoint


def stored_name(checkpoint: Checkpoint, name: str) -> str:
    """The name of a tensor in the file, which differs from its name in the series if it was renamed."""
    return checkpoint.stored_name(name) if isinstance(checkpoint, RenamedCheckpoint) else name
