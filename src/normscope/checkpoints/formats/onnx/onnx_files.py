"""ONNX files: their weights, in the file or in files beside it, read where they are.

Files beside it are opened only if they are in the same folder or below it: their path is what the file says,
so it is followed name by name through the listing of the folder.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping

import numpy as np

from normscope.checkpoints.base import ITEM_SIZES, Checkpoint, File, Folder, Tensor
from normscope.checkpoints.extents import ByteRange, Extent, Extras, TableCheckpoint
from normscope.checkpoints.formats.held_bytes import Held
from normscope.checkpoints.formats.model_entries import no_parameters
from normscope.checkpoints.formats.onnx.onnx_graph import (
    OnnxNode,
    StoredTensor,
    looks_like_a_model,
    read_graph,
)
from normscope.checkpoints.formats.onnx.onnx_weights import (
    QUANTISED,
    Uses,
    is_quantised,
    name_by_use,
    why_no_weight,
)
from normscope.checkpoints.formats.onnx.proto_file import LENGTH, ProtoFile
from normscope.checkpoints.formats.onnx.shared_values import MERGED_NOTE, separated, transposed_copies
from normscope.errors import CheckpointError, CorruptCheckpoint

SUFFIX = ".onnx"
_DTYPES: Mapping[int, str] = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128",
    16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz",
    24: "float8_e8m0fnu",
}  # fmt: skip
_DIRECT = {"float": "float32", "double": "float64"}
"""Typed fields whose bytes are those of the values."""
_DECODED = 1 << 22
"""Numbers of variable length that are decoded for one tensor: small ones are stored so."""
_LEAST_SHARE = 0.01  # of all elements: less does not change the norm of the network


def is_onnx(file: File) -> bool:
    """Whether the whole file is one ModelProto with a graph."""
    return file.size > 16 and file.peek(0, 1) == b"\x08" and looks_like_a_model(ProtoFile(file))


def open_onnx(file: File) -> Checkpoint:
    """Open the weights of a model that is in one file."""
    return _OnnxReader(file, None).open()


def open_onnx_in(folder: Folder, name: str) -> Checkpoint:
    """Open the weights of a model, of which some may be in other files of its folder."""
    return _OnnxReader(folder.file(name), folder).open()


class _OnnxReader:
    """Turns the tensors of a graph into a table of weights."""

    def __init__(self, file: File, folder: Folder | None) -> None:
        self.file, self.folder = file, folder
        self.proto = ProtoFile(file)
        self.beside: dict[str, File] = {}
        self.decoded = _DECODED

    def open(self) -> Checkpoint:
        """Read the graph, and find the bytes of each weight."""
        try:
            return self._open()
        except (ValueError, IndexError) as error:
            raise CorruptCheckpoint(
                f"{self.file.name} is not a valid ONNX file ({str(error)[:150]}). Copy or export it again."
            ) from None

    def _open(self) -> Checkpoint:
        graph = read_graph(self.proto)
        uses = Uses(graph)
        tensors: dict[str, Tensor] = {}
        extents: dict[str, Extent] = {}
        skipped: dict[str, str] = {}
        packed: list[StoredTensor] = []
        places: dict[str, list[tuple[OnnxNode, int]]] = {}
        merged = False
        for stored, again, taken in separated(graph, uses):
            dtype = _DTYPES.get(stored.dtype, "")
            if reason := _reason(stored, dtype, taken):
                skipped[stored.name] = reason
                packed += [stored] if reason == QUANTISED else []
                continue
            name = self._free_name(name_by_use(stored.name, taken), stored, tensors)
            extents[name] = self._extent(stored, dtype)
            storage = again or _storage(extents[name], stored)
            tensors[name] = Tensor(name, stored.shape, dtype, storage)
            places[name], merged = taken, merged or bool(again)
        for name, table in self._copies(tensors, extents, places).items():
            skipped[name] = f"a transposed copy of {table[:200]}"
            del tensors[name], extents[name]
        if graph.sparse:
            skipped["sparse initialisers"] = f"{graph.sparse} sparse tensors are not read"
        self._refuse_packed(packed, sum(tensor.numel for tensor in tensors.values()))
        if not tensors:
            raise no_parameters(self.file.name, skipped)
        extras = Extras(skipped, notes=(MERGED_NOTE,) if merged else ())
        return TableCheckpoint("onnx", [self.file, *self.beside.values()], tensors, extents, extras)

    def _copies(
        self,
        tensors: Mapping[str, Tensor],
        extents: Mapping[str, Extent],
        places: Mapping[str, list[tuple[OnnxNode, int]]],
    ) -> dict[str, str]:
        taken = {name: {node.operator for node, _ in uses} for name, uses in places.items()}
        tables = [name for name, operators in taken.items() if "Gather" in operators]
        heads = [name for name, operators in taken.items() if operators <= {"MatMul", "Gemm"}]
        return transposed_copies(tensors, extents, tables, heads)

    def _free_name(self, name: str, stored: StoredTensor, taken: Collection[str]) -> str:
        if name in taken:
            name = f"{stored.scope}/{stored.name}" if stored.scope else stored.name
        if name in taken:
            raise ValueError(f"the tensor {name[:80]!r} appears twice")
        return name

    def _refuse_packed(self, packed: list[StoredTensor], plain: int) -> None:
        count = sum(math.prod(stored.shape) for stored in packed)
        if count >= _LEAST_SHARE * (count + plain) and count:
            raise CheckpointError(
                f"{self.file.name} contains quantised weights ({packed[0].name[:100]!r} is one; "
                f"{count:,} numbers in all): the stored numbers are not the weights, and are not restored. "
                "Scan the checkpoint before quantisation, or an export in float32 or float16."
            )

    def _extent(self, stored: StoredTensor, dtype: str) -> Extent:
        nbytes = math.prod(stored.shape) * ITEM_SIZES[dtype]
        if stored.external:
            return self._external(stored, nbytes)
        if stored.raw is not None:
            self._check(stored, nbytes, stored.raw.stop - stored.raw.start)
            return ByteRange(self.file, stored.raw.start)
        if not nbytes:
            return Held(b"")
        if len(stored.typed) != 1:
            raise ValueError(f"{stored.name[:80]!r} has no values, or values in several fields")
        kind, place = stored.typed[0]
        if _DIRECT.get(kind) == dtype and place.kind == LENGTH:
            self._check(stored, nbytes, place.stop - place.start)
            return ByteRange(self.file, place.start)
        if kind != "int32" or ITEM_SIZES[dtype] > 2:
            raise ValueError(f"{stored.name[:80]!r} has values in a field of another dtype")
        values = self.proto.integers(place, self.decoded)
        self.decoded -= len(values)
        self._check(stored, nbytes, len(values) * ITEM_SIZES[dtype])
        if any(not 0 <= value < 1 << 8 * ITEM_SIZES[dtype] for value in values):
            raise ValueError(f"{stored.name[:80]!r} has values that do not fit into {dtype}")
        return Held(np.array(values, f"<u{ITEM_SIZES[dtype]}").tobytes())

    def _check(self, stored: StoredTensor, expected: int, found: int) -> None:
        if expected != found:
            raise CorruptCheckpoint(
                f"{self.file.name} has {found:,} bytes for {stored.name[:100]!r}, whose shape "
                f"{list(stored.shape)} needs {expected:,}."
            )

    def _external(self, stored: StoredTensor, nbytes: int) -> Extent:
        where = stored.external
        offset = _whole_number(where.get("offset", "0"), "offset")
        file = self._file(where.get("location", ""))
        length = _whole_number(where["length"], "length") if "length" in where else nbytes
        self._check(stored, nbytes, length)
        file.check_range(offset, offset + length)
        return ByteRange(file, offset)

    def _file(self, location: str) -> File:
        """A file of the folder, found through listings, so that no path can lead out of it."""
        if location in self.beside:
            return self.beside[location]
        if self.folder is None:
            raise CheckpointError(
                f"{self.file.name} keeps weights in {location[:100]!r}. Give its folder, or rename it to end "
                "with .onnx."
            )
        folder, parts = self.folder, location.split("/")
        if parts[0] == ".":
            parts = parts[1:]
        for part in parts[:-1]:
            if part in ("", ".", "..") or f"{part}/" not in folder.names():
                raise self._missing(location)
            folder = folder.folder(f"{part}/")
        if parts[-1:] in ([], [""]) or parts[-1] not in folder.names():
            raise self._missing(location)
        self.beside[location] = folder.file(parts[-1])
        return self.beside[location]

    def _missing(self, location: str) -> CorruptCheckpoint:
        return CorruptCheckpoint(
            f"{self.file.name} keeps weights in {location[:200]!r}, which is not a file of its folder. "
            "Copy it there."
        )


def _reason(stored: StoredTensor, dtype: str, taken: list[tuple[OnnxNode, int]]) -> str:
    """Why a stored tensor is not read as a weight; empty if it is."""
    if is_quantised(taken):
        return QUANTISED
    if not dtype.startswith(("float", "bfloat")):
        return f"a constant of {dtype or f'ONNX dtype {stored.dtype}'}"
    return why_no_weight(stored.name, stored.shape, taken)


def _storage(extent: Extent, stored: StoredTensor) -> Hashable:
    """What tied weights share: a place in a file; an exporter may store a name for each use of it."""
    if isinstance(extent, ByteRange) and isinstance(extent.base, File) and 0 not in stored.shape:
        return extent.base.name, extent.offset
    return stored.scope, stored.name


def _whole_number(text: str, what: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ValueError(f"the {what} of external data is {text[:40]!r}")
    return int(text)
