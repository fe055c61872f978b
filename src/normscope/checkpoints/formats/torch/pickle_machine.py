"""Reads a pickle as data, with a stack machine that can build values but cannot call anything.

Python's own unpickler imports and calls what a pickle names. This one has no way to do that: a class
or function becomes a `Global` (two strings), a call becomes a `CallRecord` (what would have been
called, with which arguments), and the caller looks for the records it knows. So a pickle that
contains a custom config class, or an attack, is read like any other, and nothing in it is run.

Opcodes: CPython's Lib/pickletools.py. A budget limits the memory that a pickle can make the machine
use, and memo positions are dictionary keys, not array indices.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from normscope.checkpoints.formats.torch.pickle_values import (
    ARRAY_FUNCTIONS,
    CALL,
    DICT,
    LIST,
    LONG_TEXT,
    MARK,
    MEMO,
    OPCODE,
    PAIR,
    CallRecord,
    Global,
    Persistent,
    Pickle,
    PickleBytes,
    PickleMachine,
    as_key,
)
from normscope.errors import CorruptCheckpoint

_Operation = Callable[[PickleMachine], Any]


def unpickle(data: PickleBytes, position: int = 0, long_text: int = LONG_TEXT) -> Pickle:
    """Read the pickle that begins at `position`; text of more than `long_text` bytes stays where it is."""
    machine = PickleMachine(data, position, long_text=long_text)
    try:
        value = _run(machine)
        return Pickle(value, machine.position, tuple(machine.globals), tuple(machine.array_calls))
    except (LookupError, TypeError, ValueError, struct.error, RecursionError, OverflowError) as error:
        what = f"{type(error).__name__}: {str(error)[:80]}"
        raise CorruptCheckpoint(f"damaged pickle at byte {machine.position:,} ({what})") from None


def _run(machine: PickleMachine) -> Any:
    data = machine.data
    while True:
        code = data[machine.position]
        machine.position += 1
        if code == 46:  # b"."
            return machine.stack.pop()
        machine.budget -= OPCODE
        if machine.budget < 0:
            raise CorruptCheckpoint("a pickle with too many values for a checkpoint")
        _OPERATIONS[code](machine)


def _set_items(m: PickleMachine, target: Any, values: list[Any]) -> None:
    m.budget -= PAIR * (len(values) // 2)
    pairs = target.pairs if isinstance(target, CallRecord) else target
    if not isinstance(pairs, dict):
        raise ValueError("SETITEMS opcode applied to a non-dictionary")
    pairs.update({as_key(k): v for k, v in zip(values[::2], values[1::2], strict=True)})


def _extend(target: Any, values: list[Any]) -> None:
    items = target.items if isinstance(target, CallRecord) else target
    if not isinstance(items, list):
        raise ValueError("APPENDS opcode applied to a non-list")
    items.extend(values)


def _reduce(m: PickleMachine) -> None:
    args = m.stack.pop()
    function = m.stack.pop()
    m.budget -= CALL
    call = CallRecord(function, args)
    m.push(call)
    if isinstance(function, Global) and function.name in ARRAY_FUNCTIONS:
        m.array_calls.append(call)


def _new(m: PickleMachine) -> None:
    args, cls = m.stack.pop(), m.stack.pop()
    m.budget -= CALL
    m.push(CallRecord(cls, args))


def _new_ex(m: PickleMachine) -> None:
    keywords, args, cls = m.stack.pop(), m.stack.pop(), m.stack.pop()
    m.budget -= CALL
    m.push(CallRecord(cls, args, {"keywords": keywords}))


def _obj(m: PickleMachine) -> None:
    cls, *args = m.since_mark()
    m.budget -= CALL
    m.push(CallRecord(cls, tuple(args)))


def _inst(m: PickleMachine) -> None:
    cls = m.name(m.line(), m.line())
    m.budget -= CALL
    m.push(CallRecord(cls, tuple(m.since_mark())))


def _build(m: PickleMachine) -> None:
    state = m.stack.pop()
    if isinstance(target := m.stack[-1], CallRecord):
        target.state = state


def _setitem(m: PickleMachine) -> None:
    value, key = m.stack.pop(), m.stack.pop()
    _set_items(m, m.stack[-1], [key, value])


def _setitems(m: PickleMachine) -> None:
    values = m.since_mark()
    _set_items(m, m.stack[-1], values)


def _append(m: PickleMachine) -> None:
    value = m.stack.pop()
    _extend(m.stack[-1], [value])


def _appends(m: PickleMachine) -> None:
    values = m.since_mark()
    _extend(m.stack[-1], values)


def _dict(m: PickleMachine) -> None:
    m.budget -= DICT
    result: dict[Any, Any] = {}
    _set_items(m, result, m.since_mark())
    m.push(result)


def _sequence(m: PickleMachine, values: list[Any] | tuple[Any, ...]) -> None:
    m.budget -= LIST
    m.push(values)


def _tuple(m: PickleMachine, count: int) -> None:
    values = tuple(m.stack[-count:])
    if len(values) != count:
        raise ValueError("stack underflow")
    del m.stack[-count:]
    m.budget -= LIST
    m.push(values)


def _stack_global(m: PickleMachine) -> None:
    name, module = m.stack.pop(), m.stack.pop()
    if not (isinstance(name, str) and isinstance(module, str)):
        raise ValueError("STACK_GLOBAL opcode applied to non-strings")
    m.push(m.name(module, name))


def _integer_line(m: PickleMachine) -> None:
    text = m.line()
    m.push({"00": False, "01": True}[text] if text in ("00", "01") else int(text))


def _put(m: PickleMachine, index: int) -> None:
    if not 0 <= index < 1 << 32:
        raise ValueError("invalid memo position")
    m.budget -= MEMO
    m.memo[index] = m.stack[-1]


def _empty_dict(m: PickleMachine) -> None:
    m.budget -= DICT
    m.push({})


def _global(m: PickleMachine) -> None:
    m.push(m.name(m.line(), m.line()))


def _text_operations() -> dict[bytes, _Operation]:
    """Protocols 0 and 1: numbers and strings as lines of text."""
    return {
        b"I": _integer_line,
        b"L": lambda m: m.push(int(m.line().rstrip("L"))),
        b"F": lambda m: m.push(float(m.line())),
        b"S": lambda m: m.push(m.line()[1:-1]),
        b"V": lambda m: m.push(m.line()),
        b"P": lambda m: m.push(Persistent(m.line())),
        b"p": lambda m: _put(m, int(m.line())),
        b"g": lambda m: m.push(m.memo[int(m.line())]),
        b"c": _global,
        b"i": _inst,
    }


def _scalar_operations() -> dict[bytes, _Operation]:
    return {
        b"N": lambda m: m.push(None),
        b"\x88": lambda m: m.push(True),
        b"\x89": lambda m: m.push(False),
        b"J": lambda m: m.push(m.signed(4)),
        b"K": lambda m: m.stack.append(m.byte()),
        b"M": lambda m: m.push(m.unsigned(2)),
        b"\x8a": lambda m: m.push(m.integer(m.byte())),
        b"\x8b": lambda m: m.push(m.integer(min(m.unsigned(4), 1 << 20))),
        b"G": lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
        b"X": lambda m: m.push(m.text(m.unsigned(4))),
        b"\x8c": lambda m: m.push(m.text(m.byte())),
        b"\x8d": lambda m: m.push(m.text(m.unsigned(8))),
        b"T": lambda m: m.push(m.raw(m.unsigned(4))),
        b"U": lambda m: m.push(m.raw(m.byte())),
        b"B": lambda m: m.push(m.raw(m.unsigned(4))),
        b"C": lambda m: m.push(m.raw(m.byte())),
        b"\x8e": lambda m: m.push(m.raw(m.unsigned(8))),
        b"\x96": lambda m: m.push(m.raw(m.unsigned(8))),
    }


def _persistent(m: PickleMachine) -> None:
    """The storage of a tensor; of one with two classes torch.load would use the first for both."""
    key = m.stack.pop()
    if isinstance(key, tuple) and len(key) > 2 and isinstance(key[1], Global) and isinstance(key[2], str):
        known = m.storage_classes.setdefault(key[2], key[1].name)
        if known != key[1].name:
            raise CorruptCheckpoint(
                f"the storage {key[2][:80]!r} is described as {known[:80]!r} and as {key[1].name[:80]!r}"
            )
    m.push(Persistent(key))


def _structure_operations() -> dict[bytes, _Operation]:
    return {
        b"]": lambda m: _sequence(m, []),
        b"}": _empty_dict,
        b")": lambda m: m.push(()),
        b"\x8f": lambda m: _sequence(m, []),  # a set, represented as the list of its members
        b"\x90": _appends,
        b"\x91": lambda m: _sequence(m, m.since_mark()),
        b"l": lambda m: _sequence(m, m.since_mark()),
        b"t": lambda m: _sequence(m, tuple(m.since_mark())),
        b"d": _dict,
        b"\x85": lambda m: _tuple(m, 1),
        b"\x86": lambda m: _tuple(m, 2),
        b"\x87": lambda m: _tuple(m, 3),
        b"a": _append,
        b"e": _appends,
        b"s": _setitem,
        b"u": _setitems,
        b"R": _reduce,
        b"\x81": _new,
        b"\x92": _new_ex,
        b"o": _obj,
        b"b": _build,
        b"\x93": _stack_global,
        b"Q": _persistent,
    }


def _stack_operations() -> dict[bytes, _Operation]:
    return {
        b"(": lambda m: m.push(MARK),
        b"0": lambda m: m.stack.pop(),
        b"1": lambda m: m.since_mark(),
        b"2": lambda m: m.push(m.stack[-1]),
        b"q": lambda m: _put(m, m.byte()),
        b"r": lambda m: _put(m, m.unsigned(4)),
        b"\x94": lambda m: _put(m, len(m.memo)),
        b"h": lambda m: m.push(m.memo[m.byte()]),
        b"j": lambda m: m.push(m.memo[m.unsigned(4)]),
        b"\x97": _out_of_band,
        b"\x98": _out_of_band,
        b"\x80": lambda m: m.take(1),
        b"\x95": lambda m: m.take(8),
    }


def _out_of_band(m: PickleMachine) -> None:
    raise CorruptCheckpoint("its arrays are in buffers outside of it (buffer_callback); pickle them in it")


def _refuse(m: PickleMachine) -> None:
    raise ValueError(f"unknown opcode {m.data[m.position - 1]:#x}")


def _table() -> list[_Operation]:
    known = {**_text_operations(), **_scalar_operations(), **_structure_operations(), **_stack_operations()}
    return [known.get(bytes([code]), _refuse) for code in range(256)]


_OPERATIONS = _table()
