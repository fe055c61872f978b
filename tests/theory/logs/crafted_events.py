"""Crafted event files of TensorBoard and metrics of MLflow."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

from normscope.checkpoints.formats.tensorflow.crc32c import masked_crc

from .crafted_logs import add, folder_of


def record(data: bytes, length: int | None = None) -> bytes:
    """One record of an event file; `length` is what its frame says."""
    size = struct.pack("<Q", len(data) if length is None else length)
    return size + struct.pack("<I", masked_crc(size)) + data + struct.pack("<I", masked_crc(data))


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def event(step: int, values: bytes) -> bytes:
    return b"\x09" + bytes(8) + b"\x10" + varint(step % (1 << 64)) + field(5, values)


def scalar(tag: str, value: float) -> bytes:
    return field(1, field(1, tag.encode()) + b"\x15" + struct.pack("<f", value))


def events(*records: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(record(b"\x09" + bytes(8)) + b"".join(records))


def points(count: int = 40, tag: str = "norm") -> bytes:
    return b"".join(record(event(10 * i, scalar(tag, (i + 1) ** 0.5))) for i in range(count))


def sparse(path: Path, records: int, size: int) -> None:
    """An event file of large records that take no place on a disk."""
    with path.open("wb") as file:
        file.write(points())
        for _ in range(records):
            frame = struct.pack("<Q", size)
            file.write(frame + struct.pack("<I", masked_crc(frame)))
            file.seek(size + 4, os.SEEK_CUR)
        file.write(points(2, "end"))


START = b"\x09" + bytes(8) + b"\x10\x00" + field(7, b"\x08\x01")
"""A session that starts at step 0."""


def restart(step: int) -> bytes:
    return record(b"\x09" + bytes(8) + b"\x10" + varint(step) + field(7, b"\x08\x01"))


add("events: sound", lambda path: events(points())(path), "sqrt-linear", 0)
add(
    "events: a length of 2^30",
    lambda path: path.write_bytes(points() + record(b"x", 1 << 30)),
    "sqrt-linear",
    0,
)
add(
    "events: a length of 2^63",
    lambda path: path.write_bytes(points() + record(b"x", 1 << 63)),
    "incomplete",
    0,
)
add("events: sparse records of 900 MB", lambda path: sparse(path, 2, 900_000_000), "sqrt-linear", 0)
add("events: sparse records of 100 MB", lambda path: sparse(path, 20, 100_000_000), "sqrt-linear", 0)
add(
    "events: 10 MB of empty fields",
    lambda path: events(points(), record(event(1, b"\x0a\x00" * 5_000_000)))(path),
    "300,000 fields",
    slow=True,
)
add(
    "events: 500 kB of empty fields",
    lambda path: events(points(), record(event(1, b"\x0a\x00" * 250_000)))(path),
    "sqrt-linear",
    0,
    slow=True,
)
add(
    "events: 30,000 tags",
    lambda path: events(*(record(event(1, scalar(f"t{i}", 1.0))) for i in range(30_000)))(path),
    "too many",
    slow=True,
)
add(
    "events: 30,000 tags in one event",
    lambda path: events(record(event(1, b"".join(scalar(f"t{i}", 1.0) for i in range(30_000)))))(path),
    "too many",
    slow=True,
)
add(
    "events: a tag of 20 MB",
    lambda path: events(points(), record(event(1, scalar("t" * 20_000_000, 1.0))))(path),
    "left out",
    0,
    slow=True,
)
add(
    "events: 30,000 restarts after 30,000 points",
    lambda path: events(points(30_000), *[restart(10**9)] * 30_000)(path),
    "sqrt-linear",
    0,
    slow=True,
)
add(
    "events: steps below zero",
    lambda path: events(*(record(event(-i, scalar("norm", i + 1.0))) for i in range(20)))(path),
    "",
)
add(
    "events: a step of 2^63 - 1",
    lambda path: events(points(), record(event((1 << 63) - 1, scalar("norm", 9.0))))(path),
    "2^53",
)
add(
    "events: a tag with escapes",
    lambda path: events(points(9, "\x1b[31mnorm"), points(9, "norm b"))(path),
    "norm b",
    0,
)
add(
    "events: a varint that does not end",
    lambda path: events(record(b"\x09" + bytes(8) + b"\x10" + b"\xff" * 30))(path),
    "",
)
add(
    "events: a tensor of 2^62 elements in its shape",
    lambda path: events(
        points(),
        record(
            event(
                500,
                field(
                    1,
                    field(1, b"norm") + field(8, b"\x08\x01" + field(2, field(2, b"\x08" + varint(1 << 62)))),
                ),
            )
        ),
    )(path),
    "sqrt-linear",
    0,
)
add(
    "events: a tensor whose bytes are no numbers",
    lambda path: events(
        points(), record(event(500, field(1, field(1, b"norm") + field(8, b"\x08\x01" + field(4, b"abc")))))
    )(path),
    "",
)
add(
    "events: integers of ten bytes",
    lambda path: events(
        points(),
        record(
            event(500, field(1, field(1, b"norm") + field(8, b"\x08\x09" + field(10, b"\xff" * 9 + b"\x01"))))
        ),
    )(path),
    "none of these laws holds",
    0,
)
add(
    "events: a half that is too large",
    lambda path: events(
        points(),
        record(event(500, field(1, field(1, b"norm") + field(8, b"\x08\x13" + field(13, varint(1 << 40)))))),
    )(path),
    "",
)
add(
    "events: a pipe beside the file",
    lambda path: (
        folder_of({"events.out.tfevents.1": points()})(path),
        os.mkfifo(path / "events.out.tfevents.2"),
    ),
    "sqrt-linear",
    0,
)
add(
    "events: a link to a device",
    lambda path: (
        folder_of({"events.out.tfevents.1": points()})(path),
        (path / "events.out.tfevents.2").symlink_to("/dev/zero"),
    ),
    "sqrt-linear",
    0,
)

META = "artifact_uri: x\n"


def mlflow(line: str) -> Callable[[Path], None]:
    sound = "".join(f"0 {(i + 1) ** 0.5} {10 * i}\n" for i in range(30))
    return folder_of({"meta.yaml": META, "metrics/norm": sound + line})


add("mlflow: sound", mlflow(""), "sqrt-linear", 0)
add("mlflow: a step of 10^400", mlflow(f"0 1.5 {'9' * 400}\n"), "")
add("mlflow: a step of 5,000 digits", mlflow(f"0 1.5 {'9' * 5000}\n"), "line 31")
add("mlflow: a value that is a word with escapes", mlflow("0 \x1b[31mx 1\n"), "line 31")
add(
    "mlflow: bytes that are not UTF-8",
    lambda path: folder_of({"meta.yaml": META, "metrics/norm": b"\xff\xfe 1 2\n"})(path),
    "",
)
add(
    "mlflow: a pipe among the metrics",
    lambda path: (mlflow("")(path), os.mkfifo(path / "metrics" / "loss")),
    "sqrt-linear",
    0,
)
add(
    "mlflow: a link to a device among the metrics",
    lambda path: (mlflow("")(path), (path / "metrics" / "loss").symlink_to("/dev/zero")),
    "sqrt-linear",
    0,
)
add(
    "mlflow: a link to the folder above",
    lambda path: (mlflow("")(path), (path / "metrics" / "sub").symlink_to("..")),
    "sqrt-linear",
    0,
)
add(
    "mlflow: a line of 1 GB",
    lambda path: (mlflow("")(path), os.truncate(path / "metrics" / "norm", 1_000_000_000)),
    "",
)
add(
    "mlflow: 20,000 metrics",
    lambda path: folder_of({"meta.yaml": META, **{f"metrics/m{i}": "0 1 1\n" for i in range(20_000)}})(path),
    "",
    2,
    slow=True,
)
