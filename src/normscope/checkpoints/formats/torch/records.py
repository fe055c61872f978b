"""What torch writes into a pickle: records of calls that would rebuild tensors and storages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from normscope.checkpoints.formats.torch.pickle_values import Call, Global, Persistent
from normscope.errors import CorruptCheckpoint

ITEM_SIZES: Mapping[str, int] = {
    "float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "complex128": 16, "complex64": 8, "complex32": 4,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "bool": 1,
    "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1,
}  # fmt: skip
"""Bytes an element of every dtype that torch stores plainly."""

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
    """A run of bytes kept beside the pickle: its key there, and how many bytes are claimed."""

    key: str
    dtype: str
    nbytes: int
    start: int = 0
    """Bytes to skip: legacy files store views of storages."""


@dataclass(frozen=True)
class Raw:
    """A tensor as torch describes it: a strided view of a storage, counted in elements."""

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
    def contiguous(self) -> bool:
        """Whether the elements lie one after the other in row-major order."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return self.numel == 0
            expected *= size
        return True


def read_tensor(value: Any) -> Raw | str | None:
    """The tensor that the record would rebuild, the reason why it cannot be read, or None if it is none."""
    for _ in range(8):  # parameters and subclasses wrap one another
        if not isinstance(value, Call) or not isinstance(value.function, Global):
            return None
        module, name = value.function.module, value.function.name
        if not module.startswith("torch"):
            return None
        if name in ("_rebuild_parameter", "_rebuild_parameter_with_state", "Parameter", "Buffer"):
            value = value.args[0] if isinstance(value.args, tuple) and value.args else None
        elif name == "_rebuild_from_type_v2":
            value = _unwrap_subclass(value.args)
        elif name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3"):
            return _read_raw(name, value.args)
        elif name == "DTensor":
            return "one rank's part of a distributed tensor: gather it first, or point at the DCP folder"
        else:
            return _REASONS.get(name)
    return None


def _unwrap_subclass(args: Any) -> Any:
    if isinstance(args, tuple) and len(args) >= 3 and isinstance(args[0], Global):
        return Call(args[0], args[2])
    return None


def _read_raw(name: str, args: Any) -> Raw:
    try:
        persistent, offset, shape, strides, *rest = args
        storage = read_storage(persistent)
        dtype = _dtype_name(rest[2]) if name == "_rebuild_tensor_v3" else storage.dtype
        raw = Raw(storage, dtype, offset, tuple(shape), tuple(strides))
    except (TypeError, ValueError, IndexError) as error:
        raise CorruptCheckpoint(f"a tensor record is damaged ({error})") from None
    counts = (offset, *raw.shape, *raw.strides)
    if len(raw.shape) != len(raw.strides) or len(raw.shape) > 64:
        raise CorruptCheckpoint("a tensor record's shape and strides do not agree")
    if not all(type(n) is int and 0 <= n < 1 << 62 for n in counts):
        raise CorruptCheckpoint("a tensor record's shape, strides or offset is no count")
    return raw


def persistent_keys(root: Any) -> Iterator[Persistent]:
    """Every persistent id anywhere in a pickle's value."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Persistent):
            if not (isinstance(value.key, tuple) and value.key[:1] == ("module",)):  # a class's source code
                yield value
        elif isinstance(value, Call | dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            waiting += parts(value)


def parts(value: Call | dict[Any, Any] | list[Any] | tuple[Any, ...]) -> Iterable[Any]:
    """Everything directly inside a container or a call."""
    if isinstance(value, Call):
        return (value.function, value.args, value.state, value.items, value.pairs)
    return value.values() if isinstance(value, dict) else value


def read_storage(value: Any, *, whole: bool = False) -> Storage:
    """The storage behind a persistent id: ("storage", class, key, location, elements[, view]).

    `whole` asks for the storage itself where the id is that of a view into it.
    """
    key = value.key if isinstance(value, Persistent) else None
    if not isinstance(key, tuple) or len(key) < 5 or key[0] != "storage" or not isinstance(key[2], str):
        raise ValueError("no storage")
    dtype = _storage_dtype(key[1])
    count, width = key[4], ITEM_SIZES[dtype]
    if type(count) is not int or not 0 <= count < 1 << 62:
        raise ValueError("a storage's size is no count")
    if len(key) > 5 and key[5] is not None and not whole:
        _, start, count = key[5]
        if not all(type(n) is int and 0 <= n < 1 << 62 for n in (start, count)):
            raise ValueError("a storage's view is no range")
        return Storage(key[2], dtype, count * width, start * width)
    return Storage(key[2], dtype, count * width)


def _storage_dtype(cls: Any) -> str:
    if isinstance(cls, Global) and cls.module.startswith("torch") and cls.name in _STORAGES:
        return _STORAGES[cls.name]
    raise ValueError(f"unknown storage class {str(cls)[:80]}")


def _dtype_name(value: Any) -> str:
    if isinstance(value, Global) and value.module == "torch" and value.name in ITEM_SIZES:
        return value.name
    raise ValueError(f"unknown dtype {str(value)[:80]}")
