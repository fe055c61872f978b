"""safetensors, one file or several shards; the header is checked before anything is mapped.

The file is an 8-byte little-endian header length, that many bytes of JSON, then the data:
https://github.com/huggingface/safetensors#format. What the reference implementation
refuses (gaps, overlaps, a wrong length) is refused here too.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from normscope.checkpoints.base import Checkpoint, File, Folder, Tensor, quoted
from normscope.checkpoints.extents import ByteRange, Extent, Extras, TableCheckpoint
from normscope.checkpoints.formats.json_headers import HEADER_LIMIT, parse_object
from normscope.checkpoints.limits import is_text
from normscope.errors import CorruptCheckpoint
from normscope.words import some

_brief = reprlib.Repr()
_brief.maxlong = _brief.maxstring = 80
_SHARED_LIMIT = 4_000_000
"""Parsed headers up to this many bytes are reused for the next checkpoints of a series."""
_SAVE_AGAIN = " Copy or save it again."

# name in the file → (torch's name, bits)
_DTYPES: Mapping[str, tuple[str, int]] = {
    "F64": ("float64", 64), "F32": ("float32", 32), "F16": ("float16", 16), "BF16": ("bfloat16", 16),
    "F8_E4M3": ("float8_e4m3fn", 8), "F8_E5M2": ("float8_e5m2", 8), "F8_E8M0": ("float8_e8m0fnu", 8),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 8), "F8_E5M2FNUZ": ("float8_e5m2fnuz", 8),
    "F6_E2M3": ("float6_e2m3fn", 6), "F6_E3M2": ("float6_e3m2fn", 6), "F4": ("float4_e2m1fn", 4),
    "I64": ("int64", 64), "I32": ("int32", 32), "I16": ("int16", 16), "I8": ("int8", 8),
    "U64": ("uint64", 64), "U32": ("uint32", 32), "U16": ("uint16", 16), "U8": ("uint8", 8),
    "BOOL": ("bool", 8), "C64": ("complex64", 64),
}  # fmt: skip


def is_safetensors(file: File) -> bool:
    """Whether the file begins with a plausible header length and a brace."""
    if file.size < 10:
        return False
    head = file.peek(0, 9)
    return head[8:] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= file.size - 8


def open_safetensors(file: File) -> Checkpoint:
    """Open a checkpoint that is one file."""
    header = read_safetensors_header(file)
    extras = Extras(metadata=header.metadata)
    return TableCheckpoint("safetensors", [file], header.tensors, _FileRanges(file, header.offsets), extras)


def open_sharded(folder: Folder, index_name: str) -> Checkpoint:
    """Open a checkpoint that consists of an index file and its shards."""
    index = folder.file(index_name)
    weight_map = read_weight_map(index)
    present = set(folder.names())
    files: list[File] = []
    tensors: dict[str, Tensor] = {}
    extents: dict[str, ByteRange] = {}
    skipped: dict[str, str] = {}
    metadata: dict[str, str] = {}
    for shard in sorted(set(weight_map.values())):
        if shard not in present:
            raise CorruptCheckpoint(
                f"{index.name} names the shard {shard[:200]!r}, which is missing. Copy it too."
            )
        files.append(folder.file(shard))
        header = read_safetensors_header(files[-1])
        metadata |= header.metadata
        for name, tensor in header.tensors.items():
            if weight_map.get(name) == shard:
                tensors[name], extents[name] = tensor, ByteRange(files[-1], header.offsets[name])
            else:
                skipped[f"{name} ({shard})"] = "not listed in the index"
    if missing := sorted(weight_map.keys() - tensors.keys()):
        listed = some(quoted(missing))
        raise CorruptCheckpoint(f"{index.name} lists tensors that no shard contains: {listed}.")
    return TableCheckpoint("safetensors", files, tensors, extents, Extras(skipped, metadata=metadata))


def open_shards(folder: Folder, names: list[str]) -> Checkpoint:
    """Open a checkpoint of several shards without an index; a tensor must not appear twice."""
    files = [folder.file(name) for name in names]
    tensors: dict[str, Tensor] = {}
    extents: dict[str, ByteRange] = {}
    metadata: dict[str, str] = {}
    for file in files:
        header = read_safetensors_header(file)
        metadata |= header.metadata
        for name, tensor in header.tensors.items():
            if name in tensors:
                raise CorruptCheckpoint(
                    f"{file.name} contains the tensor {name[:200]!r}, but so does another shard. "
                    "Remove the shards that do not belong to this checkpoint."
                )
            tensors[name], extents[name] = tensor, ByteRange(file, header.offsets[name])
    return TableCheckpoint("safetensors", files, tensors, extents, Extras(metadata=metadata))


def read_weight_map(index: File) -> dict[str, str]:
    """Tensor name → file name of its shard; a path that leads out of the folder is refused."""
    if index.size > HEADER_LIMIT:
        raise CorruptCheckpoint(f"{index.name} is too large: {index.size:,} bytes (limit {HEADER_LIMIT:,}).")
    content = parse_object(index.peek(0, index.size), index.name)
    weight_map = content.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CorruptCheckpoint(f"{index.name} has no weight_map; it should map tensor names to shards.")
    for shard in weight_map.values():
        if not isinstance(shard, str) or set(shard) & {"/", "\\", "\0"} or shard in ("", ".", ".."):
            raise CorruptCheckpoint(
                f"{index.name} names the shard {_brief.repr(shard)[:80]}, which is not a file name."
            )
    return weight_map


@dataclass(frozen=True)
class SafetensorsHeader:
    """A parsed header; checkpoints of one run share it, because their headers are equal."""

    tensors: Mapping[str, Tensor]
    offsets: Mapping[str, int]
    """Offset of each tensor in the file."""
    metadata: Mapping[str, str]
    """What `__metadata__` says."""


class _FileRanges(Mapping[str, Extent]):
    """The extents of one file's tensors, each created when it is asked for."""

    def __init__(self, file: File, offsets: Mapping[str, int]) -> None:
        self._file, self._offsets = file, offsets

    def __getitem__(self, name: str) -> ByteRange:
        return ByteRange(self._file, self._offsets[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)


def read_safetensors_header(file: File) -> SafetensorsHeader:
    """Read and check the header of a file."""
    if file.size < 8:
        raise CorruptCheckpoint(f"{file.name} is too short for a safetensors header ({file.size} bytes).")
    length = int.from_bytes(file.peek(0, 8), "little")
    if length > min(HEADER_LIMIT, file.size - 8):
        raise CorruptCheckpoint(
            f"{file.name} claims a header of {length:,} bytes in a file of {file.size:,}: "
            "it is truncated or not a safetensors file. Copy or save it again."
        )
    header = file.peek(8, 8 + length)
    parse = _parse_shared if length < _SHARED_LIMIT else _parse
    try:
        return parse(header, file.size - length - 8)
    except CorruptCheckpoint as error:
        said = str(error).removesuffix(_SAVE_AGAIN)
        raise CorruptCheckpoint(f"{file.name}: {said}{_SAVE_AGAIN}") from None


def _parse(header: bytes, size: int) -> SafetensorsHeader:
    tensors: dict[str, Tensor] = {}
    offsets: dict[str, int] = {}
    ends: list[tuple[int, int]] = []
    metadata: dict[str, str] = {}
    for name, info in parse_object(header, "its header").items():
        if name != "__metadata__":
            shape, dtype, start, stop = _check_entry(name, info)
            tensors[name] = Tensor(name, shape, dtype, name)
            offsets[name] = 8 + len(header) + start
            ends.append((start, stop))
        elif info is not None and not _is_text_map(info):
            raise CorruptCheckpoint("its __metadata__ is not an object of strings.")
        else:
            metadata = info or {}
    _check_cover(ends, size)
    return SafetensorsHeader(tensors, offsets, metadata)


_parse_shared = lru_cache(maxsize=8)(_parse)


def _is_text_map(value: Any) -> bool:
    """Whether it is an object of strings, none of them with half of a surrogate pair."""
    texts = (*value, *value.values()) if isinstance(value, dict) else (None,)
    return all(isinstance(text, str) and is_text(text) for text in texts)


def _check_entry(name: str, info: Any) -> tuple[tuple[int, ...], str, int, int]:
    try:
        dtype, bits = _DTYPES[info["dtype"]]
        shape, (start, stop) = info["shape"], info["data_offsets"]
        sound = (
            isinstance(shape, list)
            and all(type(n) is int and n >= 0 for n in (*shape, start, stop))
            and len(shape) <= 64
        )
        matches = sound and (stop - start) * 8 == math.prod(shape) * bits
    except (KeyError, TypeError, ValueError):
        matches = False
    if not matches:
        raise CorruptCheckpoint(
            f"the tensor {name[:200]!r} is described as {_brief.repr(info)[:200]}, which is not "
            "a known dtype with a shape and data_offsets that match."
        )
    return tuple(shape), dtype, start, stop


def _check_cover(ends: list[tuple[int, int]], size: int) -> None:
    """Check that the tensors fill the data from the first byte to the last, without gap or overlap."""
    position = 0
    for start, stop in sorted(ends):
        if start != position:
            raise CorruptCheckpoint(f"tensors overlap or leave a gap at byte {position:,} of the data.")
        position = stop
    if position != size:
        raise CorruptCheckpoint(
            f"{position:,} bytes of tensors were expected, but there are {size:,}: "
            "it is truncated or was not completely written."
        )
