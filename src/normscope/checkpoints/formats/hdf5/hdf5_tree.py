"""The datasets of an HDF5 file by their paths, found by following the links from its root."""

from __future__ import annotations

from dataclasses import dataclass, field

from normscope.checkpoints.base import ITEM_SIZES
from normscope.checkpoints.extents import Extent
from normscope.checkpoints.formats.hdf5.hdf5_bytes import Hdf5Source
from normscope.checkpoints.formats.hdf5.hdf5_data import Stored, locate, read_filters
from normscope.checkpoints.formats.hdf5.hdf5_objects import (
    DATASPACE,
    DATATYPE,
    EXTERNAL,
    FILTERS,
    LAYOUT,
    Hdf5Objects,
    HeaderMessage,
)
from normscope.checkpoints.formats.hdf5.hdf5_values import (
    OPAQUE_16,
    ElementType,
    read_shape,
    read_type,
    text_attributes,
)
from normscope.checkpoints.limits import limits
from normscope.errors import CheckpointError, CorruptCheckpoint

_DEEPEST = 64
NEVER_WRITTEN = "no values were ever written"
Path = tuple[str, ...]


@dataclass(frozen=True)
class Hdf5Array:
    """An array of a file; `extent` is None if it cannot hold weights, for the `reason`."""

    shape: tuple[int, ...]
    dtype: str
    storage: int
    extent: Extent | None
    reason: str = ""


@dataclass
class Hdf5Tree:
    """The datasets of a file, the texts attached to its groups, and links that lead nowhere new."""

    datasets: dict[Path, Hdf5Array] = field(default_factory=dict)
    attributes: dict[Path, dict[str, str]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def read_tree(source: Hdf5Source) -> Hdf5Tree:
    """Read the structure of a file; whatever is wrong with it is a CorruptCheckpoint."""
    try:
        return _Walk(source).walk()
    except (ValueError, IndexError, OverflowError) as error:
        raise CorruptCheckpoint(
            f"{source.name} is not a valid HDF5 file ({str(error)[:150]}). Copy or save it again."
        ) from None


class _Walk:
    """Visits every group once, level by level; a group that is reached twice is named, not read again."""

    def __init__(self, source: Hdf5Source) -> None:
        self.objects, self.tree = Hdf5Objects(source), Hdf5Tree()
        self._groups: set[int] = set()
        self._entries = self._characters = 0

    def walk(self) -> Hdf5Tree:
        """Follow the links from the root."""
        waiting: list[tuple[Path, int]] = [((), self.objects.root)]
        while waiting:
            path, address = waiting.pop()
            messages = self.objects.messages(address)
            if any(message.kind == LAYOUT for message in messages):
                if path in self.tree.datasets:
                    raise ValueError(f"two datasets are called {'/'.join(path)[:80]!r}")
                self.tree.datasets[path] = self._dataset("/".join(path), address, messages)
            elif address in self._groups:
                self.tree.skipped["/".join(path)] = "a second link to a group"
            else:
                self._groups.add(address)
                waiting += reversed(self._below(path, messages))
        return self.tree

    def _below(self, path: Path, messages: list[HeaderMessage]) -> list[tuple[Path, int]]:
        if found := text_attributes(self.objects, messages):
            self.tree.attributes[path] = found
        if len(path) >= _DEEPEST:
            raise ValueError(f"groups are nested more than {_DEEPEST} deep")
        below = []
        for link in self.objects.links(messages):
            self._count(path, link.name)
            if link.address is None:
                self.tree.skipped["/".join((*path, link.name))] = "a link by name, to something in the file"
            else:
                below.append(((*path, link.name), link.address))
        return below

    def _count(self, path: Path, name: str) -> None:
        self._entries += 1
        self._characters += len(name) + sum(map(len, path))
        allowed = limits()
        if self._entries > allowed.tensors or self._characters > allowed.names:
            raise ValueError(
                f"too many names (limit {allowed.tensors:,}, with {allowed.names:,} characters in all)"
            )

    def _dataset(self, name: str, address: int, messages: list[HeaderMessage]) -> Hdf5Array:
        if any(message.kind == EXTERNAL for message in messages):
            raise CheckpointError(
                f"{self.objects.bytes.source.name} keeps the values of {name[:100]!r} in another file, "
                "which is never opened. Save the model in one file."
            )
        kinds = {message.kind: message for message in messages}
        if DATATYPE not in kinds or DATASPACE not in kinds:
            raise ValueError(f"{name[:80]!r} has no dtype or no shape")
        element, shape = read_type(kinds[DATATYPE].piece()), read_shape(kinds[DATASPACE].piece())
        element = self._meant(element, messages)
        if element.name not in ITEM_SIZES:
            return Hdf5Array(shape, element.name, address, None, f"values of {element.name}")
        if element.big_endian:
            raise CheckpointError(
                f"{self.objects.bytes.source.name} was written on a big-endian machine; save it again."
            )
        filters = read_filters(kinds[FILTERS].piece()) if FILTERS in kinds else ()
        extent = locate(self.objects, Stored(name, shape, element.width, filters), kinds[LAYOUT])
        return Hdf5Array(shape, element.name, address, extent, "" if extent else NEVER_WRITTEN)

    def _meant(self, element: ElementType, messages: list[HeaderMessage]) -> ElementType:
        """Keras stores bfloat16 as two bytes without a meaning, and the meaning in an attribute."""
        if element.name != OPAQUE_16:
            return element
        said = text_attributes(self.objects, messages).get("dtype", "")
        return ElementType(said if ITEM_SIZES.get(said) == 2 else OPAQUE_16, 2, element.kind)
