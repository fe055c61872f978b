"""TensorFlow's indexes: sorted tables with blocks that overlap, keys that repeat, sizes that lie."""

from normscope.checkpoints.formats.tensorflow.ordered_code import slice_key

from ..bundle_writer import MAGIC, block, field, masked_crc, varint, write_table
from .case import add


def shape(*sizes):
    return b"".join(field(2, field(1, size)) for size in sizes)


def entry(sizes=(2,), offset=0, size=8, dtype=1, shard=0, more=b""):
    return (
        field(1, dtype) + field(2, shape(*sizes)) + field(3, shard) + field(4, offset) + field(5, size) + more
    )


def one(name, pairs, says="", code=1, data=bytes(64), header=field(1, 1), compress=bytes):
    def write(folder):
        listed = pairs() if callable(pairs) else pairs
        write_table(folder / "model.ckpt-1.index", [(b"", header), *sorted(listed)], 16, compress)
        (folder / "model.ckpt-1.data-00000-of-00001").write_bytes(data)

    add(f"tensorflow: {name}", write, says, code)


one("sound", [(b"w", entry())], code=0)
one("a size of 2^63", [(b"w", entry([2**63]))], "not a list of non-negative")
one("a product of 2^120", [(b"w", entry([2**60, 2**60]))], "does not match its shape")
one("no elements, but sizes of 2^61", [(b"w", entry()), (b"x", entry([0, 2**61], 0, 0))], code=0)
one("65 axes", [(b"w", entry([1] * 65, 0, 4))], "not a list")
one("an offset of 2^62", [(b"w", entry(offset=2**62))], "truncated")
one("a negative offset", [(b"w", entry(offset=2**64 - 8))], "negative")
one("a size of 2^63 - 1 bytes", [(b"w", entry(size=2**63 - 1))], "does not match")
one("a step of 2 GB", [(b"w", entry()), (b"global_step", entry([], 0, 2**31, 9))], "", code=0)
one("a shard of 10^9", [(b"w", entry(shard=10**9))], "is missing")
one("2^63 shards", [(b"w", entry())], "is missing", header=field(1, 2**63 - 1))
one("a name that is not UTF-8", [(b"w\xff", entry())], code=0)
one("a name with control characters", [(b"w\x1b[2J", entry([3]))], "does not match")
one("a name of 2,000 bytes", [(b"w" * 2000, entry())], "2,000 characters")
one("a name for quadratic patterns", [(b"optimizer/" * 700, entry())], "")
one("a layer of 10^20", [(b"layers/100000000000000000000/kernel", entry())], code=0)
one("a dtype of 10^9", [(b"w", entry()), (b"x", entry(dtype=10**9))], code=0)
one(
    "entries that overlap",
    lambda: [(b"w%05d" % i, entry([500_000], 0, 2_000_000)) for i in range(20_000)],
    "bytes of values",
    data=bytes(2_000_000),
)
one("an entry that is a bomb of fields", lambda: [(b"w", b"\x08\x01" * 3_000_000)], "an entry of")
one("an entry of text", [(b"w", b"hello")], "")
one("a field longer than the entry", [(b"w", b"\x12\xff\xff\xff\xff\x0f")], "truncated")
one("a slice that is missing", [(b"w", entry(more=field(7, field(1, field(1, 0) + field(2, 2)))))], "")
one(
    "200,000 slices",
    lambda: [(b"w", entry([400_000], more=field(7, field(1, b"")) * 200_000))],
    "too many slices",
)
one("an empty table", [], "no model parameters")
one("two names that become one", [(b"w\xfe", entry()), (b"w\xff", entry())], "two variables are called")
one(
    "a variable with and without its attribute",
    [(b"w", entry()), (b"w/.ATTRIBUTES/VARIABLE_VALUE", entry())],
    "two variables are called",
)
one("a key twice", [(b"w", entry()), (b"w", entry(offset=8))], "not in order")
one("a field of the number 0", [(b"w", entry(more=b"\0\1"))], "the number 0")


def sliced(name, start, length, part, says, code=1):
    """A variable of two numbers, whose one slice is told to be at `start`, with the entry `part`."""
    told = field(7, field(1, field(1, start) + field(2, length % 2**64)))
    key = slice_key(b"w", [(start, length)])
    one(f"a slice {name}", [(b"w", entry(size=0, more=told)), (key, part)], says, code)


sliced("of the whole axis", 0, -1, entry(), "", 0)
sliced("that begins behind the end", 2, 2, entry(), "exactly once")
sliced("of another dtype", 0, 2, entry(dtype=3), "another dtype or shape")
sliced("of another shape", 0, 2, entry([1, 2]), "another dtype or shape")
sliced("of the length -2", 0, -2, entry(), "another dtype or shape")


def raw(name, content, says=""):
    def write(folder):
        (folder / "model.ckpt-1.index").write_bytes(content())
        (folder / "model.ckpt-1.data-00000-of-00001").write_bytes(bytes(64))

    add(f"tensorflow: {name}", write, says)


def table(blocks, handles):
    """A table from blocks that are already made, and the handles of its index."""
    data = b"".join(blocks)
    content, trailer = block(handles, bytes)
    footer = varint(0) + varint(0) + varint(len(data)) + varint(len(content))
    return data + content + trailer + footer.ljust(40, b"\0") + MAGIC


def sealed(content, kind=b"\0"):
    return content + kind + masked_crc(content + kind).to_bytes(4, "little")


END = bytes(4) + (1).to_bytes(4, "little")


def prefix_bomb(length, count):
    content = varint(0) + varint(length) + varint(0) + b"k" * length
    content += (varint(length) + varint(1) + varint(0) + b"x") * 1
    return content + (varint(length) + varint(1) + varint(0) + b"y") * count + END


def growing_keys(count):
    """Each key is the one before with another byte: n² bytes of keys."""
    return b"".join(varint(i) + varint(1) + varint(0) + b"k" for i in range(count)) + END


def bomb(content, kind=b"\0"):
    return table([sealed(content, kind)], [(b"z", varint(0) + varint(len(content)))])


raw("a long key repeated 200,000 times", lambda: bomb(prefix_bomb(1_000_000, 200_000)), "a key of")
raw("keys that grow", lambda: bomb(growing_keys(20_000)), "a key of")
raw(
    "keys of 8 kB, 20,000 times",
    lambda: bomb(
        b"".join(
            varint(8000 if i else 0)
            + varint(8 if i else 8008)
            + varint(0)
            + (b"%08d" % i).rjust(8 if i else 8008, b"k")
            for i in range(20_000)
        )
        + END
    ),
    "too many entries",
)
raw(
    "a block listed 50,000 times",
    lambda: table([sealed(END)], [(b"%06d" % i, varint(0) + varint(8)) for i in range(50_000)]),
    "overlap",
)


def shifted():
    content = b"".join(varint(0) + varint(1) + varint(1) + b"kv" for _ in range(2000)) + END
    return table(
        [sealed(content)], [(b"%06d" % i, varint(5 * i) + varint(len(content) - 5 * i)) for i in range(1000)]
    )


raw("blocks that overlap", shifted, "damaged")
raw(
    "keys that are not in order",
    lambda: bomb(b"".join(varint(0) + varint(1) + varint(0) + key for key in (b"b", b"a")) + END),
    "not in order",
)
raw("a block behind the end", lambda: table([], [(b"z", varint(2**40) + varint(8))]), "beyond the file")
raw("a block of 2^63 bytes", lambda: table([], [(b"z", varint(0) + varint(2**63))]), "beyond the file")
raw("2^32 restarts", lambda: bomb(b"\xff" * 8), "too short")
raw("snappy that claims 2^32 bytes", lambda: bomb(varint(2**32 - 1) + b"\0", b"\1"), "too large")
raw(
    "snappy that repeats one byte",
    lambda: bomb(varint(7_000_000) + b"\0a" + b"\xfe\1\0" * 120_000, b"\1"),
    "longer",
)
raw(
    "snappy that looks back too far",
    lambda: bomb(varint(100) + b"\0a" + b"\xfe\xff\xff", b"\1"),
    "before its start",
)
raw("snappy of single bytes", lambda: bomb(varint(6_000_000) + b"\0a" * 6_000_000, b"\1"), "")
raw("an unknown compression", lambda: bomb(END, b"\7"), "unknown compression")
raw("a wrong checksum", lambda: table([END + bytes(5)], [(b"z", varint(0) + varint(8))]), "checksum")
raw("40 MB", lambda: bytes(40_000_000) + MAGIC, "too large")
raw("only the magic number", lambda: bytes(40) + MAGIC, "")
