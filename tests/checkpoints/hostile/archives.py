"""Zip archives and NumPy's .npz: members that overlap, expand, or are not what they claim."""

import io
import struct
import zipfile
import zlib

import numpy as np

from .case import add_file


def npy(shape, descr="<f4", data=b"", fortran=False, version=1):
    sizes = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    text = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': ({sizes}), }}\n".encode()
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def archive(members, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as target:
        for name, data in members.items():
            target.writestr(name, data)
    return out.getvalue()


def one(name, members, says="", code=1, method=zipfile.ZIP_STORED):
    add_file(f"npz: {name}", "step_1.npz", lambda: archive(members(), method), says, code)


W = {"w.npy": npy([2], data=bytes(8))}
one("sound", lambda: W, code=0)
one("a size of 10^17", lambda: {"w.npy": npy([10**17])}, "which needs")
one("64 sizes of 10^17", lambda: {"w.npy": npy([10**17] * 64)}, "0 bytes for")
one("no elements, but sizes of 10^17", lambda: {**W, "v.npy": npy([0, 10**17, 10**17])}, code=0)
one("65 axes", lambda: {"w.npy": npy([1] * 65, data=bytes(4))}, "invalid header")
one("a size of 5,000 digits", lambda: {"w.npy": npy(["9" * 5000])}, "invalid header")
one("a negative size", lambda: {"w.npy": npy([-2], data=bytes(8))}, "invalid header")
one("a header that is code", lambda: {"w.npy": npy([2]).replace(b"'<f4'", b"exit()")}, "invalid header")
one("objects", lambda: {**W, "v.npy": npy([2], "|O", b"cos\nsystem\n.")}, code=0)
one("only objects", lambda: {"v.npy": npy([2], "|O", b"cos\nsystem\n.")}, "no numeric arrays")
one("a member that is no array", lambda: {**W, "v.npy": b"hello"}, "not an array")
one("an empty member", lambda: {**W, "v.npy": b""}, "not an array")
one("a header of 4 GB", lambda: {"w.npy": b"\x93NUMPY\2\0" + b"\xff" * 4}, "not an array")
one(
    "brackets for a quadratic pattern",
    lambda: {"w.npy": npy([2]).replace(b"(2,)", b"(" + b"1, " * 20_000 + b")")},
    "",
)
one("a formula as a name", lambda: {"=1+1.npy": npy([2], data=bytes(8))}, code=0)
one("a name out of the folder", lambda: {"../../w.npy": npy([2], data=bytes(8))}, code=0)
one("a name with control characters", lambda: {"w\x1b[2J.npy": npy([3], data=bytes(8))}, "which needs")
one("a layer of 10^20", lambda: {"layers.100000000000000000000.weight.npy": npy([2], data=bytes(8))}, code=0)
one(
    "a scalar of 30 MB that is the step",
    lambda: {**W, "step.npy": npy([], "<i8", bytes(30_000_000))},
    "which needs",
    method=zipfile.ZIP_DEFLATED,
)
one("a step of -1", lambda: {**W, "step.npy": npy([], "<i8", b"\xff" * 8)}, code=0)
one(
    "100 MB of zeros, deflated",
    lambda: {"w.npy": npy([25_000_000], data=bytes(100_000_000))},
    code=0,
    method=zipfile.ZIP_DEFLATED,
)
one(
    "300 MB of zeros, deflated",
    lambda: {"w.npy": npy([75_000_000], data=bytes(300_000_000))},
    "bytes of values",
    method=zipfile.ZIP_DEFLATED,
)
one(
    "a Fortran array of 100 MB, deflated",
    lambda: {"w.npy": npy([5000, 5000], data=bytes(100_000_000), fortran=True)},
    code=0,
    method=zipfile.ZIP_DEFLATED,
)
one(
    "2,000 members, deflated",
    lambda: {f"w{i}.npy": npy([2], data=bytes(8)) for i in range(2_000)},
    code=0,
    method=zipfile.ZIP_DEFLATED,
)
one("an unknown method", lambda: W, "unknown method", method=zipfile.ZIP_LZMA)
one("real values", lambda: {"w.npy": npy([2], data=np.ones(2, "<f4").tobytes())}, code=0)


def directory(entries, body=b"", count=None, size=None, start=None):
    """An archive with a directory of our own: (name, offset of the header, packed, size, method)."""
    listed = b"".join(
        struct.pack(
            "<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, method, 0, 0, 0, packed, total, len(name), 0, 0, 0, 0, 0, at
        )
        + name
        for name, at, packed, total, method in entries
    )
    where = len(body) if start is None else start
    end = struct.pack(
        "<4s4H2LH",
        b"PK\5\6",
        0,
        0,
        0,
        len(entries) if count is None else count,
        len(listed) if size is None else size,
        where,
        0,
    )
    return body + listed + end


def flagged(needed=20, flags=0):
    """A sound archive whose directory asks for a version, or says how its member is encoded."""
    whole = bytearray(directory([(b"w.npy", 0, len(ARRAY), len(ARRAY), 0)], local(ARRAY)))
    at = whole.index(b"PK\1\2")
    whole[at + 6 : at + 10] = struct.pack("<2H", needed, flags)
    return bytes(whole)


def local(data, method=0, total=None):
    sizes = (len(data), len(data) if total is None else total)
    return struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, method, 0, 0, 0, *sizes, 0, 0) + data


ARRAY = npy([2], data=bytes(8))
deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
PACKED = deflater.compress(ARRAY) + deflater.flush()


def crafted(name, content, says="", code=1):
    add_file(f"zip: {name}", "step_1.npz", content, says, code)


crafted(
    "60,000 members in one place",
    lambda: directory(
        [(b"%06d.npy" % i, 0, len(PACKED), len(ARRAY), 8) for i in range(60_000)],
        local(PACKED, 8, len(ARRAY)),
    ),
    "overlap",
)
crafted(
    "a member of 4 GB in 100 bytes",
    lambda: directory([(b"w.npy", 0, 2**32 - 2, 2**32 - 2, 0)], local(ARRAY)),
    "overlap",
)
crafted(
    "a member that deflates to less",
    lambda: directory([(b"w.npy", 0, len(PACKED), len(ARRAY) + 1, 8)], local(PACKED, 8)),
    "step_1.npz",
)
crafted(
    "a member that is not deflated",
    lambda: directory([(b"w.npy", 0, len(ARRAY), 10**6, 8)], local(ARRAY, 8)),
    "decompress",
)
crafted("a member behind the end", lambda: directory([(b"w.npy", 10**6, 4, 4, 0)], local(ARRAY)), "truncated")
crafted(
    "a member without a header", lambda: directory([(b"w.npy", 3, 4, 4, 0)], local(ARRAY)), "no member at"
)
crafted("a member twice", lambda: directory([(b"w.npy", 0, 9, 9, 0)] * 2, local(ARRAY)), "twice")
crafted("a name of 60,000 bytes", lambda: directory([(b"w" * 60_000, 0, 9, 9, 0)], local(ARRAY)), "a name of")
crafted(
    "a directory of 60,000 entries that are not there", lambda: directory([], local(ARRAY), 60_000), "damaged"
)
crafted("a directory behind the end", lambda: directory([], local(ARRAY), 1, 2**31, 2**31), "beyond the end")
crafted("no flags", flagged, code=0)
crafted("a version of the future", lambda: flagged(needed=127), "later version")
crafted("an encrypted member", lambda: flagged(flags=1), "encrypted")
crafted("a strongly encrypted member", lambda: flagged(flags=0x41), "encrypted")
crafted("a member that is a patch", lambda: flagged(flags=0x20), "a patch")
crafted("flags that change nothing", lambda: flagged(flags=0x806), code=0)
crafted("no members", lambda: directory([]), "")
crafted(
    "zip64 without its record", lambda: directory([], local(ARRAY), 65_535, 2**32 - 1, 2**32 - 1), "beyond"
)
crafted(
    "a name that is not UTF-8",
    lambda: directory([(b"w\xff.npy", 0, len(ARRAY), len(ARRAY), 0)], local(ARRAY)),
    code=0,
)
