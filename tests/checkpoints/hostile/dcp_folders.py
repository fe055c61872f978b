"""torch.distributed.checkpoint: metadata whose chunks are shared, missing, or of impossible sizes."""

from .case import add
from .pickles import (
    APPEND,
    BUILD,
    DICT,
    LIST,
    MARK,
    REDUCE,
    SETITEMS,
    STOP,
    TUPLE,
    archive,
    doubled_tuples,
    entries,
    get,
    integer,
    named,
    put,
    sizes,
    storage,
    tensor,
    text,
)

META = "torch.distributed.checkpoint.metadata"
DTYPE = named("torch", "float32")


def record(name, *pairs, module=META):
    return named(module, name) + b")" + b"\x81" + entries(*pairs) + BUILD


def size(values):
    return named("torch", "Size") + sizes(values) + b"\x85" + REDUCE


def chunk(offsets=(0,), lengths=(4,)):
    return record("ChunkStorageMetadata", (text("offsets"), size(offsets)), (text("sizes"), size(lengths)))


def described(shape=(4,), chunks=None, dtype=DTYPE):
    properties = named(META, "TensorProperties") + b")" + b"\x81" + entries((text("dtype"), dtype)) + BUILD
    listed = LIST + MARK + (chunks if chunks is not None else chunk()) + b"e"
    return record(
        "TensorStorageMetadata",
        (text("properties"), properties),
        (text("size"), size(shape)),
        (text("chunks"), listed),
    )


def index(name, offset=(0,)):
    return record(
        "MetadataIndex",
        (text("fqn"), name if isinstance(name, bytes) else text(name)),
        (text("offset"), size(offset)),
    )


def place(offset=0, length=None, file="__0_0.distcp"):
    return record(
        "_StorageInfo",
        (text("relative_path"), text(file)),
        (text("offset"), integer(offset)),
        (text("length"), integer(len(PART) if length is None else length)),
        module="torch.distributed.checkpoint.filesystem",
    )


PART = archive(tensor())


def metadata(state, stored, planner=b"N"):
    return (
        b"\x80\x02"
        + record(
            "Metadata",
            (text("state_dict_metadata"), state),
            (text("planner_data"), planner),
            (text("storage_data"), stored),
        )
        + STOP
    )


def one(name, state, stored, says="", code=1, planner=b"N", part=PART):
    def write(folder):
        inside = folder / "step_1"
        inside.mkdir()
        (inside / ".metadata").write_bytes(metadata(state(), stored(), planner))
        (inside / "__0_0.distcp").write_bytes(part)

    add(f"dcp: {name}", write, says, code)


W = lambda: entries((text("w"), described()))  # noqa: E731
AT = lambda: entries((index("w"), place()))  # noqa: E731
one("sound", W, AT, code=0)
one("a size of 2^70", lambda: entries((text("w"), described([2**70]))), AT, "not a non-negative")
one("a size of 2^50", lambda: entries((text("w"), described([2**50]))), AT, "do not cover")
one(
    "a chunk of 2^50",
    lambda: entries((text("w"), described([2**50], chunk((0,), (2**50,))))),
    AT,
    "bytes of values",
)
one("65 axes", lambda: entries((text("w"), described([1] * 65))), AT, "at most 64")
one("an offset behind the end", W, lambda: entries((index("w"), place(offset=10**12))), "truncated")
one("a negative length", W, lambda: entries((index("w"), place(length=-5))), "truncated")
one("a file that is missing", W, lambda: entries((index("w"), place(file="x.distcp"))), "lacks the file")
one(
    "a file out of the folder",
    W,
    lambda: entries((index("w"), place(file="../../etc/passwd"))),
    "lacks the file",
)
one("a chunk that is nowhere", W, lambda: DICT, "does not say where")
one(
    "a chunk of another shape",
    lambda: entries((text("w"), described([2], chunk((0,), (2,))))),
    AT,
    "but .metadata says",
)
one("a part that is no archive", W, AT, "", part=bytes(len(PART)))
one(
    "a dtype shared 2^60 times",
    lambda: entries((text("w"), described(dtype=doubled_tuples(60)))),
    AT,
    "unknown dtype",
)
one("a path shared 2^60 times", W, AT, "", code=0, planner=entries((text("w"), doubled_tuples(60))))
one(
    "two tensors at one path",
    lambda: entries((text("w"), described()), (text("x"), described())),
    lambda: entries((index("w"), place()), (index("x"), place())),
    "at one path",
    planner=entries(*((text(name), MARK + text("a") + TUPLE) for name in "wx")),
)
one(
    "a chunk that begins behind the end",
    lambda: entries((text("w"), described(chunks=chunk((4,), (4,))))),
    lambda: entries((index("w", (4,)), place())),
    "exactly once",
)
one("a path of a million keys", W, AT, code=0, planner=entries((text("w"), MARK + b"K\1" * 500_000 + TUPLE)))
one("a name that is a number", lambda: entries((b"K\1", described())), AT, "not a string")
one("a stored name that is a structure", W, lambda: entries((index(doubled_tuples(60)), place())), "")
one(
    "half of a surrogate pair",
    lambda: entries((text("w\ud800"), described())),
    lambda: entries((index("w\ud800"), place())),
    "not valid Unicode",
)
one(
    "a layer of 10^20",
    lambda: entries((text("layers.100000000000000000000.weight"), described())),
    lambda: entries((index("layers.100000000000000000000.weight"), place())),
    code=0,
)
one(
    "chunks that overlap",
    lambda: entries((text("w"), described([8], chunk() + chunk((2,))))),
    lambda: entries((index("w"), place()), (index("w", (2,)), place())),
    "do not cover",
)
one(
    "5,000 keys that share 5,000 chunks",
    lambda: (
        described([5000], b"".join(chunk((i,), (1,)) for i in range(5000)))
        + put(0)
        + b"0"
        + DICT
        + MARK
        + b"".join(text(f"w{i}") + get(0) for i in range(5000))
        + SETITEMS
    ),
    lambda: entries(*((index("w0", (i,)), place()) for i in range(5000))),
    "",
)
one(
    "a million sizes, shared by 2,000 chunks",
    lambda: (
        MARK
        + b"K\1" * 500_000
        + TUPLE
        + put(0)
        + b"0"
        + entries(
            (
                text("w"),
                described(
                    [4],
                    b"".join(
                        record("ChunkStorageMetadata", (text("offsets"), get(0)), (text("sizes"), get(0)))
                        for _ in range(2000)
                    ),
                ),
            )
        )
    ),
    AT,
    "at most 64",
)
one(
    "a step of 10^30",
    lambda: entries((text("model.w"), described()), (text("step"), record("BytesStorageMetadata"))),
    lambda: entries((index("model.w"), place()), (index("step", ()), place(0, len(PART)))),
    code=0,
)
one(
    "1,000 tensors in one place",
    lambda: entries(*((text(f"w{i}"), described()) for i in range(1_000))),
    lambda: entries(*((index(f"w{i}"), place()) for i in range(1_000))),
    code=0,
)
one("metadata that is a list", lambda: LIST + text("w") + APPEND, AT, "form that torch writes")
one("storage data that is a list", W, lambda: LIST, "does not say where")
one("no chunks", lambda: entries((text("w"), described([4], b""))), AT, "do not cover")
one(
    "a storage of 2^60",
    W,
    AT,
    "",
    part=archive(tensor([2**60], [1], held=storage(count=2**60))).ljust(len(PART), b"\0"),
)


def damaged(name, content, says=""):
    def write(folder):
        (folder / "step_1").mkdir()
        (folder / "step_1" / ".metadata").write_bytes(content())
        (folder / "step_1" / "__0_0.distcp").write_bytes(PART)

    add(f"dcp: {name}", write, says)


damaged("metadata of zeros", lambda: bytes(100), "damaged pickle")
damaged("empty metadata", lambda: b"", "")
damaged("metadata of ten million marks", lambda: b"\x80\x02" + MARK * 10_000_000, "too many values")
damaged(
    "metadata of another class",
    lambda: b"\x80\x02" + named("os", "system") + b")" + REDUCE + STOP,
    "not a torch",
)
