"""How torch describes tensors and storages in a pickle: as calls that would rebuild them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from normscope.checkpoints.base import ITEM_SIZES
from normscope.checkpoints.formats.torch.pickle_values import CallRecord, Global, Persistent, shown
from normscope.checkpoints.limits import AXES
from normscope.errors import CorruptCheckpoint

_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64", "UntypedStorage": "uint8",
}  # fmt: skip

_REASONS = {
    "_rebuild_sparse_tensor": "sparse",
    "_rebuild_qtensor": "quantised",
    "_rebuild_meta_tensor_no_storage": "on the meta device: it has no values",
    "_rebuild_wrapper_subclass": "a tensor subclass without a storage of its own",
    "_rebuild_nested_tensor": "nested",
}


@dataclass(frozen=True)
class Storage:
    """Bytes stored outside the pickle: their key, and how many there should be."""

    key: str
    dtype: str
    nbytes: int
    start: int = 0
    """Bytes to skip at the beginning: legacy files store views of storages."""


@dataclass(frozen=True)
class TensorRecord:
    """A tensor as torch describes it: a strided view of a storage; offset and strides count elements."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def reach(self) -> int:
        """Number of elements of the storage from the first to the last that the tensor uses."""
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return last + 1 if self.numel else 0

    @property
    def repeats(self) -> bool:
        """Whether it is an expanded view, in which elements appear more than once."""
        strides = [s for n, s in zip(self.shape, self.strides, strict=True) if n > 1]
        return self.numel > 0 and (0 in strides or self.numel > self.reach)

    @property
    def contiguous(self) -> bool:
        """Whether the elements are adjacent, in row-major order."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return self.numel == 0
            expected *= size
        return True


@dataclass(frozen=True, slots=True)
class KnownArray:
    """Replaces the function of a call that would rebuild an array: the array, or why it is not read."""

    found: TensorRecord | str


def parse_tensor(value: Any) -> TensorRecord | str | None:
    """The tensor that a call would rebuild, or why it cannot be read; None if it is not a tensor."""
    if isinstance(value, CallRecord) and isinstance(value.function, KnownArray):
        return value.function.found
    for _ in range(8):  # parameters and subclasses can be nested
        if not isinstance(value, CallRecord) or not isinstance(value.function, Global):
            return None
        module, name = value.function.module, value.function.name
        if not module.startswith("torch"):
            return None
        if name in ("_rebuild_parameter", "_rebuild_parameter_with_state", "Parameter", "Buffer"):
            value = value.args[0] if isinstance(value.args, tuple) and value.args else None
        elif name == "_rebuild_from_type_v2":
            value = _unwrap_subclass(value.args)
        elif name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3"):
            return _read_record(name, value.args)
        elif name == "DTensor":
            return "one rank's part of a distributed tensor: gather it first, or point at the DCP folder"
        else:
            return _REASONS.get(name)
    return None


def _unwrap_subclass(args: Any) -> Any:
    if isinstance(args, tuple) and len(args) >= 3 and isinstance(args[0], Global):
        return CallRecord(args[0], args[2])
    return None


def _read_record(name: str, args: Any) -> TensorRecord:
    try:
        _check_lengths(args)
        persistent, offset, shape, strides, *rest = args
        storage = read_storage(persistent)
        dtype = _dtype_name(rest[2]) if name == "_rebuild_tensor_v3" else storage.dtype
        record = TensorRecord(storage, dtype, offset, tuple(shape), tuple(strides))
    except (TypeError, ValueError, IndexError) as error:
        raise CorruptCheckpoint(f"a tensor record is damaged ({str(error)[:100]})") from None
    counts = (offset, *record.shape, *record.strides)
    if len(record.shape) != len(record.strides) or len(record.shape) > 64:
        raise CorruptCheckpoint(
            "the shape and strides of a tensor record have different lengths, or more than 64 axes"
        )
    if not all(type(n) is int and 0 <= n < 1 << 62 for n in counts):
        raise CorruptCheckpoint(
            "the shape, strides or offset of a tensor record are not non-negative integers"
        )
    return record


def _check_lengths(args: Any) -> None:
    """Refuse long arguments before they are copied: a thousand records can share a list of a million."""
    if not isinstance(args, tuple) or not 4 <= len(args) <= 16:
        raise ValueError("invalid arguments")
    if any(not isinstance(sizes, tuple | list) or len(sizes) > AXES for sizes in args[2:4]):
        raise ValueError(f"the shape or strides are not a list of at most {AXES} integers")


def persistent_keys(root: Any) -> Iterator[Persistent]:
    """Every persistent id anywhere in the value of a pickle."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Persistent):
            is_source_code = isinstance(value.key, tuple) and value.key[:1] == ("module",)
            if not is_source_code:
                yield value
        elif isinstance(value, CallRecord | dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            waiting += contained_values(value)


def contained_values(value: CallRecord | dict[Any, Any] | list[Any] | tuple[Any, ...]) -> Iterable[Any]:
    """Everything directly inside a container or a call."""
    if isinstance(value, CallRecord):
        return (value.function, value.args, value.state, value.items, value.pairs)
    return value.values() if isinstance(value, dict) else value


def read_storage(value: Any, *, whole: bool = False) -> Storage:
    """The storage behind a persistent id: ("storage", class, key, location, elements[, view]).

    If the id is that of a view, `whole` returns the storage that it is a view of.
    """
    key = value.key if isinstance(value, Persistent) else None
    if not isinstance(key, tuple) or len(key) < 5 or key[0] != "storage" or not isinstance(key[2], str):
        raise ValueError("a persistent id is not that of a storage")
    dtype = _storage_dtype(key[1])
    count, width = key[4], ITEM_SIZES[dtype]
    if type(count) is not int or not 0 <= count < 1 << 62:
        raise ValueError("the size of a storage is not a non-negative integer")
    if len(key) > 5 and key[5] is not None and not whole:
        _, start, count = key[5]
        if not all(type(n) is int and 0 <= n < 1 << 62 for n in (start, count)):
            raise ValueError("the view of a storage is not a range of non-negative integers")
        return Storage(key[2], dtype, count * width, start * width)
    return Storage(key[2], dtype, count * width)


def _storage_dtype(cls: Any) -> str:
    if isinstance(cls, Global) and cls.module.startswith("torch") and cls.name in _STORAGES:
        return _STORAGES[cls.name]
    raise ValueError(f"unknown storage class {shown(cls)}")


def _dtype_name(value: Any) -> str:
    if isinstance(value, Global) and value.module == "torch" and value.name in ITEM_SIZES:
        return value.name
    raise ValueError(f"unknown dtype {shown(value)}")


def read_size(value: Any) -> tuple[int, ...]:
    """The integers of a torch.Size, which is pickled as a call on a tuple."""
    listed = value.args[0] if isinstance(value, CallRecord) else value
    if not isinstance(listed, tuple | list) or len(listed) > AXES:
        raise ValueError(f"a size is not a list of at most {AXES} integers")
    numbers = tuple(listed)
    if not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers):
        raise ValueError("a size is not a non-negative integer")
    return numbers
