"""PyTorch's files: pickles that share structures, repeat opcodes, and describe impossible tensors."""

import io
import struct
import zipfile

from .case import add_file

MARK, STOP, TUPLE, REDUCE, LIST, DICT = b"(", b".", b"t", b"R", b"]", b"}"
SETITEM, SETITEMS, APPEND, BUILD, PERSID, NONE = b"s", b"u", b"a", b"b", b"Q", b"N"


def text(value):
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return b"X" + struct.pack("<I", len(data)) + data


def integer(value):
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return (
        b"\x8a" + bytes([len(data)]) + data
        if len(data) < 256
        else b"\x8b" + struct.pack("<I", len(data)) + data
    )


def sizes(values):
    return MARK + b"".join(map(integer, values)) + TUPLE


def put(index):
    return b"r" + struct.pack("<I", index)


def get(index):
    return b"j" + struct.pack("<I", index)


def named(module, name):
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def storage(key="0", count=4, kind="FloatStorage"):
    listed = text("storage") + named("torch", kind) + text(key) + text("cpu") + integer(count)
    return MARK + listed + TUPLE + PERSID


def tensor(shape=(4,), strides=(1,), offset=0, held=None):
    args = (held or storage()) + integer(offset) + sizes(shape) + sizes(strides) + b"\x89" + DICT
    return named("torch._utils", "_rebuild_tensor_v2") + MARK + args + TUPLE + REDUCE


def entries(*pairs):
    return DICT + MARK + b"".join(key + value for key, value in pairs) + SETITEMS


def archive(body, storages=None):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as target:
        target.writestr("m/data.pkl", b"\x80\x02" + body + STOP)
        for key, data in (storages if storages is not None else {"0": bytes(16)}).items():
            target.writestr(f"m/data/{key}", data)
    return out.getvalue()


def one(name, body, says="", code=1, storages=None):
    """A case in an archive, and the same in a legacy file, which has no storages."""
    add_file(f"torch: {name}", "step_1.pt", lambda: archive(body(), storages), says, code)


def doubled(levels, leaf=LIST):
    """A list of two references to a list of two references to …: 2**levels leaves in a few bytes."""
    result = leaf + put(0) + b"0"
    for i in range(levels):
        result += LIST + get(i) + APPEND + get(i) + APPEND + put(i + 1) + b"0"
    return result + get(levels)


def doubled_tuples(levels):
    result = b")" + put(0) + b"0"
    for i in range(levels):
        result += get(i) + get(i) + b"\x86" + put(i + 1) + b"0"
    return result + get(levels)


W = (text("w"), tensor())
one("sound", lambda: entries(W), code=0)
one("a structure shared 2^60 times", lambda: entries(W, (text("x"), doubled(60))), code=0)
one("tuples shared 2^60 times", lambda: entries(W, (text("x"), doubled_tuples(60))), code=0)
one("a tensor shared 2^20 times", lambda: entries((text("x"), doubled(20, tensor()))), "too ")
one(
    "a storage class shared 2^60 times",
    lambda: entries(
        (
            text("w"),
            tensor(
                held=MARK
                + text("storage")
                + doubled_tuples(60)
                + text("0")
                + text("cpu")
                + integer(4)
                + TUPLE
                + PERSID
            ),
        )
    ),
    "unknown storage class",
)
one(
    "a dtype shared 2^60 times",
    lambda: entries(
        (
            text("w"),
            named("torch._utils", "_rebuild_tensor_v3")
            + MARK
            + storage()
            + integer(0)
            + sizes([4])
            + sizes([1])
            + NONE
            + NONE
            + doubled_tuples(60)
            + TUPLE
            + REDUCE,
        )
    ),
    "unknown dtype",
)
one("a key shared 2^60 times", lambda: entries(W, (doubled_tuples(60), tensor())), code=0)
one(
    "keys that are calls",
    lambda: entries(W, (named("a", "b") + doubled_tuples(50) + REDUCE, tensor())),
    code=0,
)
one(
    "a tuple of calls as a key",
    lambda: entries(W, (named("a", "b") + doubled_tuples(50) + REDUCE + b"\x85", tensor())),
    code=0,
)
one(
    "a long list walked 20,000 times",
    lambda: (
        LIST
        + put(0)
        + MARK
        + NONE * 50_000
        + tensor()
        + b"e"
        + DICT
        + MARK
        + b"".join(text(f"k{i}") + get(0) for i in range(20_000))
        + SETITEMS
    ),
    "too ",
)
one(
    "20,000 keys that share one structure",
    lambda: (
        entries(*((text(f"w{i}"), tensor()) for i in range(500)))
        + put(0)
        + DICT
        + MARK
        + b"".join(text(f"k{i}") + get(0) for i in range(20_000))
        + SETITEMS
    ),
    "too ",
)
one(
    "20,000 wrappers that share one structure without tensors",
    lambda: (
        DICT
        + MARK
        + b"".join(text(f"a{i}") + NONE for i in range(100_000))
        + SETITEMS
        + put(0)
        + DICT
        + MARK
        + text("model")
        + entries(W)
        + b"".join(text(f"k{i}") + get(0) for i in range(20_000))
        + SETITEMS
    ),
    code=0,
)
one(
    "a long tuple as 100,000 keys",
    lambda: (
        MARK
        + b"K\1" * 200_000
        + TUPLE
        + put(0)
        + b"0"
        + DICT
        + MARK
        + text("w")
        + tensor()
        + (get(0) + NONE) * 100_000
        + SETITEMS
    ),
    code=0,
)
one(
    "an integer of a megabyte as 100,000 keys",
    lambda: (
        b"\x8b"
        + struct.pack("<I", 1 << 20)
        + b"\x01" * (1 << 20)
        + put(0)
        + b"0"
        + DICT
        + MARK
        + text("w")
        + tensor()
        + (get(0) + NONE) * 100_000
        + SETITEMS
    ),
    code=0,
)
one(
    "100,000 integers with one hash",
    lambda: (
        DICT
        + MARK
        + text("w")
        + tensor()
        + b"".join(integer(i * (2**61 - 1)) + NONE for i in range(100_000))
        + SETITEMS
    ),
    code=0,
)
one(
    "100,000 memo positions with one hash",
    lambda: entries(W) + b"".join(b"p%d\n" % (i * (2**61 - 1)) for i in range(1, 100_000)),
    "memo position",
)
one(
    "overlapping strides: 2^40 elements",
    lambda: entries(W, (text("v"), tensor([2] * 40, [1] * 40, held=storage(count=64)))),
    code=0,
    storages={"0": bytes(256)},
)
one(
    "only overlapping strides",
    lambda: entries((text("v"), tensor([3, 3], [1, 1], held=storage(count=5)))),
    "",
    storages={"0": bytes(20)},
)
one("a broadcast of 2^50 elements", lambda: entries(W, (text("v"), tensor([2**50], [0]))), code=0)
one(
    "5,000 views of one storage",
    lambda: entries(
        *((text(f"w{i}"), tensor([200_000], [1], i, storage(count=300_000))) for i in range(5_000))
    ),
    "bytes of values",
    storages={"0": bytes(1_200_000)},
)
one("sizes of 2^63", lambda: entries((text("w"), tensor([2**63], [1]))), "not non-negative integers")
one("a size of 2^80", lambda: entries((text("w"), tensor([2**80], [1]))), "not non-negative integers")
one(
    "an empty tensor with a size of 2^61", lambda: entries(W, (text("v"), tensor([0, 2**61], [1, 1]))), code=0
)
one("a negative stride", lambda: entries((text("w"), tensor([4], [-1], 3))), "not non-negative integers")
one("a negative offset", lambda: entries((text("w"), tensor([4], [1], -1))), "not non-negative integers")
one("65 axes", lambda: entries((text("w"), tensor([1] * 65, [1] * 65))), "at most 64")
one(
    "a million axes, shared",
    lambda: (
        MARK
        + b"K\1" * 500_000
        + TUPLE
        + put(0)
        + DICT
        + MARK
        + b"".join(
            text(f"w{i}")
            + named("torch._utils", "_rebuild_tensor_v2")
            + MARK
            + storage()
            + integer(0)
            + get(0)
            + get(0)
            + TUPLE
            + REDUCE
            for i in range(2_000)
        )
        + SETITEMS
    ),
    "at most 64",
)
one(
    "arguments of a million values, shared",
    lambda: (
        MARK
        + b"K\1" * 500_000
        + TUPLE
        + put(0)
        + DICT
        + MARK
        + b"".join(
            text(f"w{i}") + named("torch._utils", "_rebuild_tensor_v2") + get(0) + REDUCE
            for i in range(2_000)
        )
        + SETITEMS
    ),
    "invalid arguments",
)
one("more elements than the storage has", lambda: entries((text("w"), tensor([5]))), "puts the tensor")
one(
    "a storage that claims 2^60 elements",
    lambda: entries((text("w"), tensor([2**60], [1], held=storage(count=2**60)))),
    "puts the tensor",
)
one("a storage that is missing", lambda: entries((text("w"), tensor(held=storage("7")))), "lacks the member")
one(
    "a storage whose key leaves the archive",
    lambda: entries((text("w"), tensor(held=storage("../x")))),
    "lacks",
)
one("a step of 10^20", lambda: entries((text("model"), entries(W)), (text("step"), integer(10**20))), code=0)
one(
    "a step of 10^5000",
    lambda: entries((text("model"), entries(W)), (text("step"), integer(10**5000))),
    code=0,
)
one("a layer of 10^20", lambda: entries((text("layers.100000000000000000000.weight"), tensor())), code=0)
one("half of a surrogate pair", lambda: entries((text("w\ud800"), tensor())), "not valid Unicode")
one(
    "half of a surrogate pair beside the model",
    lambda: entries((text("model"), entries(W)), (text("opt\udfff"), entries(W))),
    "not valid Unicode",
)
one("a key that is not UTF-8", lambda: entries((text(b"w\xff\xfe"), tensor())), "damaged pickle")
one("bytes as a key", lambda: entries((b"C\3abc", tensor())), code=0)
one("a name of 1 MB", lambda: entries(W, (text("w" * 1_000_000), tensor())), code=0)
one(
    "nested names of 900 characters",
    lambda: entries((text("a" * 900), entries((text("b" * 900), entries(W))))),
    "too long",
)
one("a key for quadratic patterns", lambda: entries(W, (text("_opt" * 200_000), entries(W))), code=0)
one("100 levels of dictionaries", lambda: (DICT + text("a")) * 100 + tensor() + SETITEM * 100, "too deeply")
one("100,000 levels of lists", lambda: entries(W, (text("x"), LIST * 100_000 + APPEND * 99_999)), code=0)
one("100,000 levels of tuples", lambda: entries(W, (text("x"), b")" + b"\x85" * 100_000)), code=0)
one("a list inside itself", lambda: entries(W, (text("x"), LIST + put(0) + get(0) + APPEND)), code=0)
one(
    "a dictionary inside itself",
    lambda: DICT + put(0) + text("w") + tensor() + SETITEM + text("me") + get(0) + SETITEM,
    code=0,
)
one(
    "a call inside itself",
    lambda: entries(W, (text("x"), named("a", "b") + b")" + REDUCE + put(0) + get(0) + BUILD)),
    code=0,
)
one(
    "parameters of parameters",
    lambda: entries(
        W,
        (
            text("x"),
            (named("torch._utils", "_rebuild_parameter") + MARK) * 50 + tensor() + (TUPLE + REDUCE) * 50,
        ),
    ),
    code=0,
)
one("three million empty byte strings", lambda: b"C\0" * 3_000_000 + entries(W), "too many values")
one("five million empty lists", lambda: LIST * 5_000_000 + entries(W), "too many values")
one("four million empty dictionaries", lambda: DICT * 4_000_000 + entries(W), "too many values")
one("ten million marks", lambda: MARK * 10_000_000 + entries(W), "too many values")
one("six million memo entries", lambda: entries(W) + b"\x94" * 6_000_000, "too many values")
one("five million duplicates", lambda: entries(W) + b"2" * 6_000_000, "too many values")
one("three million empty texts", lambda: b"\x8c\0" * 3_000_000 + entries(W), "too many values")
one("a million calls", lambda: (named("a", "b") + b")" + REDUCE) * 1_000_000, "too many values")
one("three million names", lambda: b"c\n\n" * 3_000_000, "too many values")
one(
    "a million pairs in one dictionary",
    lambda: (
        DICT
        + MARK
        + b"".join(b"J" + struct.pack("<i", i) + NONE for i in range(1_500_000))
        + SETITEMS
        + entries(W)
    ),
    "too many values",
)
one(
    "150 MB of text with one wide character",
    lambda: entries(W, (text("x"), text("\U0001f600".encode() + b"y" * 150_000_000))),
    code=0,
)
one(
    "200 texts of a megabyte with a wide character",
    lambda: entries(W) + text("\U0001f600".encode() + b"y" * 1_000_000) * 200,
    "too many values",
)
one("a long integer as text", lambda: b"L" + b"9" * 4_000 + b"L\n0" + entries(W), code=0)
one("an integer that is not one", lambda: b"I12x\n0" + entries(W), "damaged pickle")
one("no mark", lambda: SETITEMS, "damaged pickle")
one("an unknown opcode", lambda: b"\xff", "damaged pickle")
one("a frame of 2^63 bytes", lambda: b"\x95" + b"\xff" * 8 + b"\x8e" + b"\xff" * 8, "damaged pickle")
one(
    "a call of os.system",
    lambda: named("os", "system") + MARK + text("x") + TUPLE + REDUCE,
    "Nothing was run",
)
one(
    "a call of a name with control characters",
    lambda: named("os\x1b[2J", "system\x07") + b")" + REDUCE,
    "objects",
)
one("a name of 4,000 characters to call", lambda: named("os", "x" * 4_000) + b")" + REDUCE, "Nothing was run")
one("no storage but a tensor", lambda: entries((text("w"), tensor(held=NONE))), "not that of a storage")
one(
    "a buffer list of a million",
    lambda: entries((text("model"), entries(W)), (text("buffer_names"), MARK + text("x") * 400_000 + b"l")),
    code=0,
)

HEAD = b"".join(b"\x80\x02" + part + STOP for part in (integer(0x1950A86A20F9469CFC6C), integer(1001), DICT))


def legacy(
    name, body, says="", code=1, keys=LIST + text("0") + APPEND, data=struct.pack("<Q", 4) + bytes(16)
):
    """A case in a legacy file."""
    add_file(
        f"torch legacy: {name}",
        "step_1.pt",
        lambda: HEAD + b"\x80\x02" + body() + STOP + b"\x80\x02" + keys + STOP + data,
        says,
        code,
    )


legacy("sound", lambda: entries(W), code=0)
legacy("a storage of 2^64 - 1 elements", lambda: entries(W), "truncated", data=b"\xff" * 8 + bytes(16))
legacy(
    "a storage key that is a structure",
    lambda: entries(W),
    "which no tensor uses",
    keys=doubled_tuples(60) + put(99) + LIST + get(99) + APPEND,
)
legacy("storage keys that are no list", lambda: entries(W), "list of its storages", keys=NONE)
legacy("a structure shared 2^60 times", lambda: entries(W, (text("x"), doubled(60))), code=0)
legacy(
    "overlapping strides",
    lambda: entries((text("w"), tensor([2] * 40, [1] * 40, held=storage(count=64)))),
    "",
    data=struct.pack("<Q", 64) + bytes(256),
)
legacy(
    "a thousand storages that are not there",
    lambda: entries(W),
    "truncated",
    keys=LIST + MARK + text("0") * 1000 + b"e",
)
add_file("torch legacy: half of the magic number", "step_1.pt", lambda: HEAD[:6], "damaged pickle")
add_file("torch legacy: only the first pickles", "step_1.pt", lambda: HEAD, "damaged pickle")

one(
    "a storage of two dtypes",
    lambda: entries(
        (text("w"), tensor((2,))), (text("v"), tensor((2,), held=storage("0", 2, "DoubleStorage")))
    ),
    "as 'FloatStorage' and as 'DoubleStorage'",
)
