"""What a pickle's values become, and the stack they are built on; nothing here can call anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

BUDGET = 200_000_000
"""Bytes that the values of one pickle may take, roughly."""


@dataclass(frozen=True, slots=True)
class Global:
    """A class or function by name; never imported."""

    module: str
    name: str

    def __str__(self) -> str:
        return repr(f"{self.module}.{self.name}")[1:-1]  # it may hold anything, and is shown in errors


@dataclass(frozen=True, slots=True)
class Persistent:
    """What the pickle's owner keeps elsewhere, such as a tensor's storage."""

    key: Any


@dataclass(slots=True, eq=False)
class Call:
    """What calling `function` with `args` would have made, with the state set on it afterwards."""

    function: Any
    args: Any
    state: Any = None
    items: list[Any] = field(default_factory=list)
    pairs: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pickle:
    """A pickle that was read: its value, where it ends, and every class and function it names."""

    value: Any
    end: int
    globals: tuple[Global, ...]


class Mark:
    """A place on the stack."""


MARK = Mark()


class Stack:
    """The values under way while a pickle is read, and how far it has been read."""

    def __init__(self, data: memoryview, position: int = 0, budget: int = BUDGET) -> None:
        self.data, self.position, self.budget = data, position, budget
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.globals: list[Global] = []

    def take(self, count: int) -> memoryview:
        """The next `count` bytes."""
        start, stop = self.position, self.position + count
        if count < 0 or stop > len(self.data):
            raise ValueError("cut short")
        self.position = stop
        return self.data[start:stop]

    def line(self) -> str:
        """The text up to the next end of line."""
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
        """The next `width` bytes as a number."""
        return int.from_bytes(self.take(width), "little")

    def signed(self, width: int) -> int:
        """The next `width` bytes as a number with a sign."""
        return int.from_bytes(self.take(width), "little", signed=True)

    def name(self, module: str, name: str) -> Global:
        """A class or function, noted down as one that the pickle refers to."""
        self.budget -= 200
        found = Global(module, name)
        self.globals.append(found)
        return found

    def push(self, value: Any) -> None:
        """Put a value on the stack."""
        self.stack.append(value)

    def since_mark(self) -> list[Any]:
        """Take everything above the last mark, and the mark."""
        stack = self.stack
        at = len(stack) - 1
        while stack[at] is not MARK:
            at -= 1
            if at < 0:
                raise ValueError("no mark")
        values = stack[at + 1 :]
        del stack[at:]
        return values


class Opaque:
    """A key that cannot be one here; equal only to itself."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind


# A Call compares by identity, so hashing it does not look inside.
_SIMPLE = (str, int, float, bytes, type(None), Global, Call)


def as_key(value: Any) -> Any:
    """A dictionary key; tuples are allowed only flat, as hashing deep ones may never end."""
    if isinstance(value, tuple) and all(isinstance(v, _SIMPLE) for v in value):
        return value
    return value if isinstance(value, _SIMPLE) else Opaque(type(value).__name__)
