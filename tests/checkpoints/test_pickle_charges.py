"""What the pickle machine charges for a value is at least the memory that the value takes."""

import struct
import tracemalloc

import pytest

from normscope.checkpoints.formats.torch.pickle_machine import _run, unpickle
from normscope.checkpoints.formats.torch.pickle_values import (
    BUDGET,
    BYTES,
    CALL,
    DICT,
    LIST,
    MEMO,
    OPCODE,
    PAIR,
    TEXT,
    PickleMachine,
)
from normscope.errors import CorruptCheckpoint

TIMES = 3_000
VALUES = {  # opcodes that leave one value, how many they are, and what they cost besides
    "list": (b"]", 1, LIST),
    "set": (b"\x8f", 1, LIST),
    "dictionary": (b"}", 1, DICT),
    "dictionary of a mark": (b"(K\1K\2d", 4, DICT + PAIR),
    "dictionary with an item": (b"}K\1K\2s", 4, DICT + PAIR),
    "dictionary with items": (b"}(K\1K\2K\3K\4u", 7, DICT + 2 * PAIR),
    "frozen set": (b"(K\1\x91", 3, LIST),
    "list of a mark": (b"(K\1l", 3, LIST),
    "tuple of a mark": (b"(K\1t", 3, LIST),
    "one": (b"K\1\x85", 2, LIST),
    "two": (b"K\1K\2\x86", 3, LIST),
    "three": (b"K\1K\2K\3\x87", 4, LIST),
    "text": (b"\x8c\3abc", 1, TEXT + 3),
    "wide text": (b"\x8c\4\xf0\x9f\x98\x80", 1, TEXT + 4),
    "long text": (b"X" + struct.pack("<I", 900) + b"y" * 900, 1, TEXT + 900),
    "bytes": (b"C\3abc", 1, BYTES),
    "long integer": (b"\x8a\xc8" + b"\1" * 200, 1, 200),
    "line": (b"Vabcd\n", 1, TEXT + 4),
    "integer line": (b"I1234\n", 1, TEXT + 4),
    "class": (b"cab\ncd\n", 1, CALL + 2 * TEXT + 4),
    "class of the stack": (b"\x8c\1a\x8c\1b\x93", 3, CALL + 2 * (TEXT + 1)),
    "call": (b"K\1)R", 3, CALL),
    "new": (b"K\1)\x81", 3, CALL),
    "new with keywords": (b"K\1)}\x92", 4, CALL + DICT),
    "object": (b"(K\1o", 3, CALL),
    "instance": (b"(ia\nb\n", 2, 2 * CALL + 2 * TEXT + 2),
    "memo": (b"N\x94", 2, MEMO),
}


def charged(program):
    machine = PickleMachine(memoryview(program + b"N."))
    tracemalloc.start()
    try:
        _run(machine)
        return BUDGET - machine.budget - OPCODE, tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", VALUES)
def test_every_value_is_paid_for(name):
    program, opcodes, more = VALUES[name]
    cost, used = charged(program * TIMES)
    assert cost == TIMES * (opcodes * OPCODE + more)
    assert used <= cost * 1.05 + 4_000


@pytest.mark.parametrize("name", ["list", "dictionary", "call", "memo", "text", "tuple of a mark"])
def test_a_budget_that_is_used_up_ends_the_pickle(name):
    program, opcodes, more = VALUES[name]
    enough = 100 * (opcodes * OPCODE + more) + OPCODE
    for budget, ends in ((enough, False), (enough - 1, True)):
        machine = PickleMachine(memoryview(program * 100 + b"N."), budget=budget)
        if ends:
            with pytest.raises(CorruptCheckpoint, match="too many values"):
                _run(machine)
        else:
            assert _run(machine) is None


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (b"K\1K\2K\3s.", "non-dictionary"),
        (b"K\1K\2a.", "non-list"),
        (b"K\1\x86.", "stack underflow"),
        (b"K\1K\2\x93.", "non-strings"),
        (b"Np-1\n.", "invalid memo position"),
        (b"Np4294967296\n.", "invalid memo position"),
        (b"\xff.", "unknown opcode 0xff"),
        (b"K\1t.", "no mark"),
        (b"C\5ab.", "truncated"),
    ],
)
def test_damage_is_named(program, said):
    with pytest.raises(CorruptCheckpoint, match=said):
        unpickle(memoryview(program))


def test_the_largest_memo_position_is_used():
    assert unpickle(memoryview(b"K\7p4294967295\n0j\xff\xff\xff\xff.")).value == 7


def test_values_written_as_lines_of_text():
    """Protocols 0 and 1, which Python 2 wrote: quotes belong to the line, not to the value."""
    program = b"(lp0\nS'abc'\np1\naVdef\naI12\naL34L\naF1.5\nag1\na."
    assert unpickle(program).value == ["abc", "def", 12, 34, 1.5, "abc"]
