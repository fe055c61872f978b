"""The values of a pickle as data, and the machine state in which they are built; nothing here is called."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

BUDGET = 200_000_000
"""Approximate limit, in bytes, of the memory for the values of one pickle."""


@dataclass(frozen=True, slots=True)
class Global:
    """A class or function by name; never imported."""

    module: str
    name: str

    def __str__(self) -> str:
        return repr(f"{self.module}.{self.name}")[1:-1]  # may contain anything, and is shown in errors


@dataclass(frozen=True, slots=True)
class Persistent:
    """A reference to something outside the pickle, such as the storage of a tensor."""

    key: Any


@dataclass(slots=True, eq=False)
class CallRecord:
    """A call that was not made: the function, its arguments, and what would have been set on the result."""

    function: Any
    args: Any
    state: Any = None
    items: list[Any] = field(default_factory=list)
    pairs: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pickle:
    """A pickle that was read: its value, its end position, and all classes and functions that it names."""

    value: Any
    end: int
    globals: tuple[Global, ...]


class Mark:
    """Marks a position on the stack."""


MARK = Mark()


class PickleMachine:
    """The state while a pickle is read: stack, memo, position, and the memory budget that is left."""

    def __init__(self, data: memoryview, position: int = 0, budget: int = BUDGET) -> None:
        self.data, self.position, self.budget = data, position, budget
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.globals: list[Global] = []

    def take(self, count: int) -> memoryview:
        """The next `count` bytes."""
        start, stop = self.position, self.position + count
        if count < 0 or stop > len(self.data):
            raise ValueError("truncated")
        self.position = stop
        return self.data[start:stop]

    def line(self) -> str:
        """The text up to the next newline."""
        window = bytes(self.data[self.position : self.position + 4096])
        length = window.index(b"\n")
        self.position += length + 1
        return window[:length].decode()

    def text(self, count: int) -> str:
        """The next `count` bytes as text."""
        self.budget -= count
        return str(self.take(count), "utf-8", "surrogatepass")

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
        self.budget -= 200
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
    """Replaces a dictionary key that cannot be hashed safely; equal only to itself."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind


# A CallRecord is compared by identity, so hashing it does not hash its contents.
_SIMPLE = (str, int, float, bytes, type(None), Global, CallRecord)


def as_key(value: Any) -> Any:
    """A safe dictionary key: only flat tuples are kept, because hashing nested ones may take forever."""
    if isinstance(value, tuple) and all(isinstance(v, _SIMPLE) for v in value):
        return value
    return value if isinstance(value, _SIMPLE) else Opaque(type(value).__name__)
