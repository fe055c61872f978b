"""llama2.c: seven integers that describe models which no file holds."""

import struct

from .case import add_file


def one(name, content, says=""):
    add_file(f"llama2.c: {name}", "step_1.bin", content, says)


def modern(version, sizes, group=b"", data=b""):
    return (b"24ka" + struct.pack("<I7i", version, *sizes) + b"\1" + group).ljust(256, b"\0") + data


one("sizes of 2^31", lambda: modern(1, [2**31 - 1] * 7), "invalid")
one(
    "sizes of 2^30 with 10,000 layers",
    lambda: modern(1, [2**30, 2**30, 10_000, 1, 1, 2**30, 1]),
    "should have",
)
one(
    "10,000 layers of nothing",
    lambda: struct.pack("<7i", 1, 1, 10_000, 1, 1, 1, 1) + bytes(64),
    "not a checkpoint",
)
one("two billion layers", lambda: modern(1, [1, 1, 2**31 - 1, 1, 1, 1, 1]), "invalid")
one("no heads", lambda: modern(1, [8, 8, 1, 0, 0, 8, 8]), "invalid")
one("a negative size", lambda: modern(1, [-8, 8, 1, 1, 1, 8, 8]), "invalid")
one("version 99", lambda: modern(99, [8, 8, 1, 1, 1, 8, 8]), "version 99")
one("groups of 0", lambda: modern(2, [8, 8, 1, 1, 1, 8, 8], struct.pack("<I", 0)), "groups of 0")
one("groups of 2^32", lambda: modern(2, [8, 8, 1, 1, 1, 8, 8], b"\xff" * 4), "groups of")
one("groups, but no data", lambda: modern(2, [8, 8, 1, 1, 1, 8, 8], struct.pack("<I", 4)), "should have")
one("only the magic number", lambda: b"24ka" + bytes(30), "too short")
