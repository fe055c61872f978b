"""What an offline W&B run has written, read from its .wandb file.

The file is LevelDB's log format, blocks of 32 KB with records in parts, after a header of seven bytes.
"""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any, NamedTuple

BLOCK = 32768
OURS = "normscope/"
OWN = ("_timestamp", "_runtime", "_step")


class History(NamedTuple):
    """The rows with their steps, the summary, and the axis of each metric."""

    rows: list[tuple[int, dict[str, Any]]]
    summary: dict[str, Any]
    axes: dict[str, str]

    def theirs(self) -> list[tuple[int, dict[str, Any]]]:
        """What the training loop logged: rows without our values, if anything is left."""
        kept = [
            (step, {k: v for k, v in row.items() if not k.startswith(OURS) and k not in OWN})
            for step, row in self.rows
        ]
        return [(step, row) for step, row in kept if row]

    def ours(self) -> dict[int, dict[str, float]]:
        """Our values by optimizer step."""
        found: dict[int, dict[str, float]] = {}
        for _, row in self.rows:
            mine = {k: v for k, v in row.items() if k.startswith(OURS)}
            if mine:
                found.setdefault(mine.pop("normscope/step"), {}).update(mine)
        return found


def _records(data: bytes) -> list[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    at, parts, found = 7, b"", []
    while at + 7 <= len(data):
        left = BLOCK - at % BLOCK
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = Record()
            record.ParseFromString(parts)
            found.append(record)
            parts = b""
    return found


def _items(items: Any) -> dict[str, Any]:
    return {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


def read(folder: Path, patience: float = 5.0) -> History:
    """Read the only run in the folder, once it is complete: W&B's service may write its end later."""
    deadline = time.monotonic() + patience
    while True:
        (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
        records = _records(path.read_bytes())
        if any(record.HasField("exit") for record in records):
            break
        assert time.monotonic() < deadline, "the run is not complete"
        time.sleep(0.02)
    summary: dict[str, Any] = {}
    for record in records:
        summary.update(_items(record.summary.update))
    rows = [(r.history.step.num, _items(r.history.item)) for r in records if r.HasField("history")]
    metrics = [record.metric for record in records if record.HasField("metric")]
    return History(rows, summary, {metric.name: metric.step_metric for metric in metrics if metric.name})
