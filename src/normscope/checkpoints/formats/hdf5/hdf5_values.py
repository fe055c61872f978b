"""What the messages of an HDF5 object mean: shapes, dtypes, attributes that are texts."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from normscope.checkpoints.base import ITEM_SIZES
from normscope.checkpoints.formats.hdf5.hdf5_bytes import BytesPiece
from normscope.checkpoints.formats.hdf5.hdf5_objects import ATTRIBUTE, Hdf5Objects, HeaderMessage
from normscope.checkpoints.limits import AXES

_INTEGER, _FLOAT, _STRING, _OPAQUE, _ENUM, _VARIABLE = 0, 1, 3, 5, 8, 9
_TEXT_LIMIT, _ATTRIBUTES = 65_536, 2_000
_IMPLIED_BIT = 2
_FLOATS = {
    struct.pack("<2H4BI", 0, bits, mantissa, exponent, 0, mantissa, (1 << exponent - 1) - 1): name
    for name, bits, exponent, mantissa in (
        ("float16", 16, 5, 10), ("bfloat16", 16, 8, 7), ("float32", 32, 8, 23), ("float64", 64, 11, 52),
    )
}  # fmt: skip
"""Offset, precision, places and sizes of exponent and mantissa, bias: all of them, or it is another float."""
OPAQUE_16 = "16 raw bits"
"""A dtype of two bytes without a meaning: Keras stores bfloat16 so, and says it in an attribute."""


@dataclass(frozen=True)
class ElementType:
    """The dtype of a dataset: torch's name if there is one, and its width in bytes."""

    name: str
    width: int
    kind: int
    big_endian: bool = False


def read_shape(piece: BytesPiece) -> tuple[int, ...]:
    """The shape in a dataspace message."""
    version, rank, flags = piece.number(1), piece.number(1), piece.number(1)
    kind = piece.number(1)
    if version not in (1, 2) or rank > AXES:
        raise ValueError("a dataspace is damaged")
    if version == 1:
        piece.take(4)
    elif kind == 2:
        return (0,)
    shape = tuple(piece.number(8) for _ in range(rank))
    if flags & ~3 or any(size >= 1 << 62 for size in shape):
        raise ValueError("a shape is impossible")
    return shape


def read_type(piece: BytesPiece) -> ElementType:
    """The dtype in a datatype message."""
    kind = piece.number(1) & 15
    bits, width = piece.number(3), piece.number(4)
    big = kind in (_INTEGER, _FLOAT) and bool(bits & 1) and width > 1
    name = f"HDF5's class {kind}"
    if kind == _INTEGER and width in (1, 2, 4, 8):
        plain = piece.take(4) == struct.pack("<2H", 0, 8 * width)
        name = f"{'' if bits & 8 else 'u'}int{8 * width}" if plain else "an integer of part of its bits"
    elif kind == _FLOAT:
        known = _FLOATS.get(piece.take(12), "")
        usual = bits >> 8 == 8 * width - 1 and bits >> 4 & 3 == _IMPLIED_BIT and not bits & 0x40
        name = known if usual and ITEM_SIZES.get(known) == width else f"an unusual float of {width} bytes"
    elif kind == _OPAQUE and width == 2:
        name = OPAQUE_16
    elif kind == _ENUM and width == 1:
        name = "bool"
    return ElementType(name, width, kind, big)


def text_attributes(objects: Hdf5Objects, messages: list[HeaderMessage]) -> dict[str, str]:
    """The attributes of an object that are one text each."""
    found = {}
    for message in messages[:_ATTRIBUTES]:
        if message.kind == ATTRIBUTE and not message.shared:
            name, value = _attribute(objects, message.piece())
            if value is not None:
                found[name] = value
    return found


def _attribute(objects: Hdf5Objects, piece: BytesPiece) -> tuple[str, str | None]:
    version, flags = piece.number(1), piece.number(1)
    sizes = [piece.number(2) for _ in range(3)]
    piece.take(1 if version == 3 else 0)
    unit = 8 if version == 1 else 1
    name = piece.padded(sizes[0], unit).rstrip(b"\0").decode("utf-8", "replace")
    described, space = (
        BytesPiece(piece.padded(sizes[1], unit)),
        BytesPiece(piece.padded(sizes[2], unit)),
    )
    if flags and version > 1:
        return name, None  # its dtype is kept elsewhere in the file
    element = read_type(described)
    if element.kind not in (_STRING, _VARIABLE) or math.prod(read_shape(space)) != 1:
        return name, None
    if element.kind == _STRING:
        text = piece.take(min(element.width, piece.left, _TEXT_LIMIT))
    else:
        text = _from_heap(objects, piece)
    return name, text.split(b"\0")[0].decode("utf-8", "replace")


def _from_heap(objects: Hdf5Objects, piece: BytesPiece) -> bytes:
    """A text of any length, which is kept in a collection of such texts."""
    length, address, wanted = min(piece.number(4), _TEXT_LIMIT), piece.number(8), piece.number(4)
    head = objects.bytes.at(address, 16)
    head.expect(b"GCOL")
    head.take(4)
    end, at = address + head.number(8), address + 16
    while at + 16 <= end:
        entry = objects.bytes.at(at, 16)
        index, _, size = entry.number(2), entry.take(6), entry.number(8)
        if index == wanted:
            return objects.bytes.at(at + 16, min(length, size)).data
        if index == 0:
            break
        at += 16 + size + -size % 8
    return b""
