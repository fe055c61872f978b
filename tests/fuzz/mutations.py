"""Mutations that several grammars share: strange integers, names, JSON, and damaged bytes."""

import json
import random

EXTREMES = (
    0,
    1,
    2,
    3,
    7,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    1000,
    2**15,
    2**16 - 1,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**40,
    2**53 + 1,
    2**60,
    2**61,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    10**20,
    10**40,
)
NAMES = (
    "",
    ".",
    "..",
    "../x",
    "/etc/passwd",
    "a\0b",
    "\x1b[2J",
    "\n",
    "\u202e",
    "=1+1",
    "step",
    "w" * 999,
    "w" * 1001,
    "layers.100000000000000000000.weight",
    "model",
    "optimizer",
    "state",
    "\ud800",
    "\udfff\ud800",
    "é",
    "e\u0301",
    "__metadata__",
    "data.pkl",
    "a/b",
    "a\\b",
    "layer.0.w",
    "global_step",
    "ema.w",
    "'\"<>&",
    "\U0001f600" * 9,
)


def integer(rng: random.Random, near: int = 4, low: int = -1) -> int:
    """An integer near the right one, or an extreme one."""
    kind = rng.randrange(4)
    if kind == 0:
        return max(low, near + rng.choice((-2, -1, 1, 2, 4, 8)))
    if kind == 1:
        return near * rng.choice((0, 2, 3, 4, 8, 1000))
    value = rng.choice(EXTREMES)
    return max(low, value if rng.random() < 0.8 else -value)


def name(rng: random.Random) -> str:
    return (
        rng.choice(NAMES) if rng.random() < 0.7 else "".join(chr(rng.randrange(1, 0x3000)) for _ in range(5))
    )


def damaged(rng: random.Random, data: bytes, times: int = 1) -> bytes:
    """Flip, cut, repeat, insert or overwrite bytes."""
    for _ in range(times):
        at = rng.randrange(len(data) + 1)
        size = rng.choice((1, 1, 2, 4, 8, 16, 64))
        kind = rng.randrange(7)
        if kind == 0 and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at] + rng.randbytes(size) + data[at + size :]
        elif kind == 2:
            width = rng.choice((1, 2, 4, 8))
            value = rng.choice(EXTREMES) % 256**width
            data = data[:at] + value.to_bytes(width, rng.choice(("little", "big"))) + data[at + width :]
        elif kind == 3:
            data = data[:at] if rng.random() < 0.3 else data[:at] + data[at + size :]
        elif kind == 4:
            data = data[: at + size] + data[at:]
        elif kind == 5:
            data = data[:at] + rng.randbytes(size) + data[at:]
        else:
            other = rng.randrange(len(data) + 1)
            data = data[:at] + data[other : other + size] + data[at + size :]
    return data


class Pairs(list[tuple[object, object]]):
    """A JSON object as its pairs, so that a key may appear twice."""


class Raw(str):
    """Text that is put into JSON as it is."""


def as_pairs(value: object) -> object:
    if isinstance(value, dict):
        return Pairs((key, as_pairs(inner)) for key, inner in value.items())
    return [as_pairs(inner) for inner in value] if isinstance(value, list | tuple) else value


def dumps(value: object) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{dumps(key)}: {dumps(inner)}" for key, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(dumps, value)) + "]"
    return json.dumps(value)


def json_bytes(value: object, rng: random.Random) -> bytes:
    text = dumps(value)
    if rng.random() < 0.03:
        text = text.replace("\\u", "\\U")
    return text.encode("utf-8", "surrogatepass")


def strange_json(rng: random.Random, near: object) -> object:
    """A JSON value in the place of another."""
    if isinstance(near, int) and not isinstance(near, bool) and rng.random() < 0.6:
        return integer(rng, near)
    return rng.choice(
        (
            None,
            True,
            False,
            0,
            -1,
            4.0,
            1e300,
            "4",
            "",
            [],
            Pairs(),
            Raw("1e2"),
            Raw("-0"),
            Raw("NaN"),
            Raw("1.0"),
            Raw("[" * 2000),
            Raw("9" * 5000),
            Raw('{"a":1,"a":2}'),
            Raw('"\\ud800"'),
            [near, near],
            [near],
            name(rng),
            integer(rng),
            Raw("0x10"),
            Raw("01"),
            Raw("Infinity"),
            Raw('"\x01"'),
        )
    )


def mutated_json(rng: random.Random, value: object) -> object:
    """The value (made of Pairs and lists) with one place in it changed."""
    if isinstance(value, Pairs) and value and rng.random() < 0.9:
        copy, at = Pairs(value), rng.randrange(len(value))
        key, inner = value[at]
        kind = rng.randrange(9)
        if kind == 0:
            copy.append((key, rng.choice(value)[1]))  # a key twice
        elif kind == 1:
            copy[at] = (name(rng), inner)
        elif kind == 2:
            del copy[at]
        elif kind == 3:
            copy[at] = (key, rng.choice(value)[1])  # shared with another key
        else:
            copy[at] = (key, mutated_json(rng, inner))
        return copy
    if isinstance(value, list) and not isinstance(value, Pairs) and value and rng.random() < 0.9:
        changed, at = list(value), rng.randrange(len(value))
        kind = rng.randrange(6)
        if kind == 0:
            changed.insert(at, changed[at])
        elif kind == 1:
            del changed[at]
        elif kind == 2:
            changed.reverse()
        else:
            changed[at] = mutated_json(rng, value[at])
        return changed
    return strange_json(rng, value)
