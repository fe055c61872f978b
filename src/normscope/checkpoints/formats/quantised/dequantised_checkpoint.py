"""A checkpoint whose packed weights are shown as float32 tensors under the names that the model has."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from normscope.checkpoints.base import Borrowed, Buffer, Checkpoint, StoredRange, Tensor, quoted
from normscope.checkpoints.extents import SPOT, Extent
from normscope.checkpoints.formats.quantised.stored_parts import PackedWeight, StoredPart, UnreadWeight
from normscope.checkpoints.limits import reading, unreadable
from normscope.errors import NormscopeError
from normscope.remarks import UNCOUNTED
from normscope.words import some


@dataclass(frozen=True)
class Unpacking:
    """What becomes of stored tensors: weights that are dequantised, weights that are left out, the rest."""

    weights: Sequence[PackedWeight] = ()
    unread: Sequence[UnreadWeight] = ()
    unused: Mapping[str, str] = field(default_factory=dict)
    """Stored tensors that are neither weights nor needed for them, each with the reason."""

    def __bool__(self) -> bool:
        return bool(self.weights or self.unread)


class DequantisedCheckpoint(Checkpoint):
    """Another checkpoint, some of whose tensors are dequantised as they are read."""

    def __init__(self, stored: Checkpoint, unpacking: Unpacking) -> None:
        self._stored, self._unpacking = stored, unpacking
        self.format, self.step = stored.format, stored.step
        self.buffers, self.parameters, self.networks = stored.buffers, stored.parameters, stored.networks
        self.extents: dict[str, Extent] = {weight.name: weight.extent for weight in unpacking.weights}
        self.tensors = _tensors(stored.tensors, unpacking)
        self.skipped = {**stored.skipped, **_skipped(unpacking)}
        self.notes = (*stored.notes, *_notes(unpacking))
        self._digest: str | None = None

    @property
    def nbytes(self) -> int:
        """Total size of its files, measured or not."""
        return self._stored.nbytes

    @property
    def digest(self) -> str:
        """That of the stored checkpoint, then a hash of how it is dequantised and of packed samples."""
        if self._digest is None:
            marks = hashlib.blake2b(digest_size=8)
            for weight in sorted(self._unpacking.weights, key=lambda weight: weight.name):
                marks.update(f"{weight.name}\0{weight.shape}\0{weight.kind}\n".encode())
                with reading(self.format):
                    self._add_samples(marks, weight)
            self._digest = f"{self._stored.digest}.{marks.hexdigest()}"
        return self._digest

    def _add_samples(self, marks: hashlib.blake2b, weight: PackedWeight) -> None:
        """The beginning, the middle and the end of each part that lies on this machine."""
        for name in weight.parts:
            part = StoredPart(self._stored, self._stored.tensors[name])
            last = max(0, part.nbytes - SPOT)
            for start in sorted({0, last // 2, last}) if self._stored.zero_copy(name) else ():
                marks.update(self._stored.read(name, start, min(start + SPOT, part.nbytes)))

    @property
    def stamp(self) -> str | None:
        """Same as Checkpoint.stamp."""
        return self._stored.stamp

    def read(self, name: str, start: int, stop: int) -> Buffer:
        """Bytes of a stored tensor, or float32 values that are computed for it."""
        extent = self.extents.get(name)
        if extent is None:
            return self._stored.read(name, start, stop)
        try:
            return extent.read(start, stop)
        except NormscopeError:
            raise
        except Exception as error:
            raise unreadable(f"{self.format} tensor {name[:200]!r}", error) from error

    def borrow(self, name: str, start: int, stop: int, mapped: bool = True) -> Borrowed:
        """Same as Checkpoint.borrow; what is computed is a copy."""
        if name in self.extents:
            return self.read(name, start, stop)
        return self._stored.borrow(name, start, stop, mapped)

    def check_unchanged(self) -> None:
        """Same as Checkpoint.check_unchanged."""
        self._stored.check_unchanged()

    def check_not_rewritten(self) -> None:
        """Same as Checkpoint.check_not_rewritten."""
        self._stored.check_not_rewritten()

    def zero_copy(self, name: str) -> bool:
        """Same as Checkpoint.zero_copy; never of what is computed."""
        return name not in self.extents and self._stored.zero_copy(name)

    def read_granularity(self, name: str) -> int:
        """Same as Checkpoint.read_granularity."""
        extent = self.extents.get(name)
        return self._stored.read_granularity(name) if extent is None else extent.read_granularity

    def stored_range(self, name: str, start: int, stop: int) -> StoredRange | None:
        """Same as Checkpoint.stored_range; None for what is computed."""
        return None if name in self.extents else self._stored.stored_range(name, start, stop)

    def sequential(self, name: str) -> bool:
        """Same as Checkpoint.sequential."""
        return name not in self.extents and self._stored.sequential(name)

    def drop(self, name: str, start: int, stop: int) -> None:
        """Same as Checkpoint.drop; packed bytes are dropped when they have been unpacked."""
        if name not in self.extents:
            self._stored.drop(name, start, stop)

    def close(self) -> None:
        """Release its files."""
        self._stored.close()


def _tensors(stored: Mapping[str, Tensor], unpacking: Unpacking) -> dict[str, Tensor]:
    """The tensors of the model, each where the first of its parts was."""
    used = {name for weight in unpacking.weights for name in weight.parts}
    used |= {name for weight in unpacking.unread for name in weight.parts} | unpacking.unused.keys()
    first: defaultdict[str, list[PackedWeight]] = defaultdict(list)
    for weight in unpacking.weights:
        first[weight.parts[0]].append(weight)
    tensors: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        for weight in first.get(name, ()):
            storage = ("dequantised", *(stored[part].storage for part in weight.parts))
            tensors[weight.name] = Tensor(weight.name, weight.shape, "float32", storage)
        if name not in used:
            tensors[name] = tensor
    return tensors


def _skipped(unpacking: Unpacking) -> dict[str, str]:
    skipped = dict(unpacking.unused)
    for weight in unpacking.unread:
        skipped |= dict.fromkeys(weight.parts, weight.reason)
    return skipped


def _notes(unpacking: Unpacking) -> list[str]:
    """Sentences about what was dequantised, and about what is left out."""
    notes = []
    kinds = Counter(weight.kind for weight in unpacking.weights)
    if kinds:
        notes.append(f"dequantised from {', '.join(sorted(kinds))}")
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for weight in unpacking.unread:
        reasons[weight.reason].append(weight.name)
    for reason, names in reasons.items():
        what = "1 quantised weight is" if len(names) == 1 else f"{len(names)} quantised weights are"
        listed = some([name[:80] for name in quoted(names)], 1)
        notes.append(f"{what} {UNCOUNTED} ({listed}): {reason}")
    return notes
