"""The values of a pickle as data, and the machine state in which they are built; nothing here is called."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any, Protocol, overload

BUDGET = 200_000_000
"""Limit, in bytes, of the memory for the values of one pickle, counted a little high."""
OPCODE, TEXT, BYTES, MEMO, LIST, PAIR, DICT, CALL = 40, 56, 200, 110, 64, 110, 64, 250
"""What an opcode costs: its place on the stack and a number; and what else it may create."""
LONG_TEXT = 1 << 20
"""Bytes of text from which on it is not decoded: no name is that long, and wide characters take four each."""
ARRAY_FUNCTIONS = frozenset(
    (
        *("_reconstruct", "_frombuffer", "scalar"),
        *("_reconstruct_array", "reconstruct_device_array", "_reconstruct_device_array"),
    )
)
"""Functions by which NumPy and JAX would rebuild an array; calls of them are listed."""
_SHORT_BYTES = 64
_INT64, _LONG_TUPLE = 1 << 63, 16
_SALT = secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class Global:
    """A class or function by name; never imported."""

    module: str
    name: str

    def __str__(self) -> str:
        return repr(f"{self.module}.{self.name}")[1:-1]  # may contain anything, and is shown in errors


@dataclass(frozen=True, slots=True, repr=False)
class Persistent:
    """A reference to something outside the pickle, such as the storage of a tensor."""

    key: Any


@dataclass(frozen=True, slots=True, eq=False)
class RawBytes:
    """Bytes in the pickle at start … stop−1, which are not read; `short` are those of a short one."""

    start: int
    stop: int
    short: bytes = b""


@dataclass(slots=True, eq=False, repr=False)
class CallRecord:
    """A call that was not made: the function, its arguments, and what would have been set on the result."""

    function: Any
    args: Any
    state: Any = None
    items: list[Any] = field(default_factory=list)
    pairs: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pickle:
    """A pickle that was read: its value, its end position, and all classes and functions that it names.

    `array_calls` are the calls that would rebuild arrays of NumPy or JAX.
    """

    value: Any
    end: int
    globals: tuple[Global, ...]
    array_calls: tuple[CallRecord, ...] = ()


class Mark:
    """Marks a position on the stack."""


MARK = Mark()


class PickleBytes(Protocol):
    """The bytes of a pickle: a memoryview, or a file that is read in windows."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> int: ...
    @overload
    def __getitem__(self, key: slice, /) -> memoryview | bytes: ...


class PickleMachine:
    """The state while a pickle is read: stack, memo, position, and the memory budget that is left.

    Text of more than `long_text` bytes stays where it is.
    """

    def __init__(
        self, data: PickleBytes, position: int = 0, budget: int = BUDGET, long_text: int = LONG_TEXT
    ) -> None:
        self.data, self.position, self.budget, self.long_text = data, position, budget, long_text
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.storage_classes: dict[str, str] = {}
        self.globals: list[Global] = []
        self.array_calls: list[CallRecord] = []

    def take(self, count: int) -> memoryview | bytes:
        """The next `count` bytes."""
        start, stop = self.skip(count)
        return self.data[start:stop]

    def skip(self, count: int) -> tuple[int, int]:
        """Where the next `count` bytes begin and end; they are passed over."""
        start, stop = self.position, self.position + count
        if count < 0 or stop > len(self.data):
            raise ValueError("truncated")
        self.position = stop
        return start, stop

    def line(self) -> str:
        """The text up to the next newline."""
        window = bytes(self.data[self.position : self.position + 4096])
        length = window.index(b"\n")
        self.position += length + 1
        self.budget -= TEXT + length
        return window[:length].decode()

    def text(self, count: int) -> Any:
        """The next `count` bytes as text; one that is too long to be a name stays opaque."""
        self.budget -= TEXT
        if count > self.long_text:
            return LongText(*self.skip(count))
        text = str(self.take(count), "utf-8", "surrogatepass")
        self.budget -= count if text.isascii() else 4 * len(text)
        return text

    def raw(self, count: int) -> RawBytes:
        """Where the next `count` bytes are, as a value."""
        self.budget -= BYTES
        start, stop = self.skip(count)
        return RawBytes(start, stop, bytes(self.data[start:stop]) if count <= _SHORT_BYTES else b"")

    def integer(self, width: int) -> int:
        """The next `width` bytes as a signed integer of any size."""
        self.budget -= width
        return self.signed(width)

    def byte(self) -> int:
        """The next byte."""
        position = self.position
        self.position = position + 1
        return self.data[position]

    def unsigned(self, width: int) -> int:
        """The next `width` bytes as an unsigned integer."""
        return int.from_bytes(self.take(width), "little")

    def signed(self, width: int) -> int:
        """The next `width` bytes as a signed integer."""
        return int.from_bytes(self.take(width), "little", signed=True)

    def name(self, module: str, name: str) -> Global:
        """A class or function, recorded among those that the pickle names."""
        self.budget -= CALL
        found = Global(module, name)
        self.globals.append(found)
        return found

    def push(self, value: Any) -> None:
        """Put a value on the stack."""
        self.stack.append(value)

    def since_mark(self) -> list[Any]:
        """Pop everything down to the last mark, and the mark."""
        stack = self.stack
        at = len(stack) - 1
        while stack[at] is not MARK:
            at -= 1
            if at < 0:
                raise ValueError("no mark on the stack")
        values = stack[at + 1 :]
        del stack[at:]
        return values


class Opaque:
    """Replaces a value that is not kept, or a key that cannot be hashed safely; equal only to itself."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind


class LongText(Opaque):
    """A text too long to be a name, at start … stop−1 of the pickle."""

    __slots__ = ("start", "stop")

    def __init__(self, start: int, stop: int) -> None:
        super().__init__("text")
        self.start, self.stop = start, stop


class SaltedTuple(tuple[Any, ...]):
    """A tuple as a dictionary key; nobody can choose many of them that have the same hash."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash((_SALT, *self))


# A CallRecord is compared by identity, so hashing it does not hash its contents.
_SIMPLE = (str, int, float, bytes, type(None), Global, CallRecord)


def as_key(value: Any) -> Any:
    """A safe dictionary key: only short flat tuples are kept, because hashing others may take forever.

    Integers beyond 64 bits are not kept either: all multiples of 2⁶¹ − 1 have the same hash.
    """
    if isinstance(value, tuple) and len(value) <= _LONG_TUPLE and all(map(_is_simple, value)):
        return SaltedTuple(value)
    return value if _is_simple(value) else Opaque(type(value).__name__)


def _is_simple(value: Any) -> bool:
    return isinstance(value, _SIMPLE) and not (type(value) is int and not -_INT64 <= value < _INT64)


def shown(value: Any, most: int = 80) -> str:
    """An untrusted value for a message or as part of a name: nested ones are never printed.

    >>> shown(("a", (1, 2))), shown(10**5000)
    ("('a', tuple)", 'int')
    """
    if isinstance(value, str):
        return value[:most]
    if isinstance(value, tuple) and len(value) <= _LONG_TUPLE:
        return f"({', '.join(_shown_part(part, most) for part in value)}{',' * (len(value) == 1)})"
    return _shown_part(value, most)


def _shown_part(value: Any, most: int) -> str:
    if isinstance(value, str):
        return repr(value[:most])
    if isinstance(value, Global):
        return Global(value.module[:most], value.name[:most]).__str__()
    plain = isinstance(value, bool | int | float | None) and _is_simple(value)
    return str(value) if plain else value.kind if isinstance(value, Opaque) else type(value).__name__
