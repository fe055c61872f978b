"""How long a scan would take: bytes and requests from headers, time from a bandwidth and the workers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from normscope.checkpoints.series.description import SeriesInfo
from normscope.errors import UsageError

_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kKMGT]?)(i?)(B|bit)(?:/s|ps)")
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_bandwidth(text: str) -> float:
    """Return the bytes per second of a rate as it is typed.

    >>> parse_bandwidth("1.5GB/s"), parse_bandwidth("10Gbit/s"), parse_bandwidth("1MiB/s")
    (1500000000.0, 1250000000.0, 1048576.0)
    """
    match = _RATE.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise UsageError(
            f"a bandwidth is a number with a unit, such as 1GB/s, 200MB/s or 10Gbit/s; got {text!r}"
        )
    scale: int = (1024 if match[3] else 1000) ** _POWERS[match[2]]
    return float(match[1]) * scale / (8 if match[4] == "bit" else 1)


@dataclass(frozen=True)
class ReadPlan:
    """The time of a scan that only reading limits: each worker reads `bandwidth` bytes per second."""

    bytes: int
    requests: int
    workers: int
    bandwidth: float

    @classmethod
    def of(cls, found: SeriesInfo, workers: int, bandwidth: str) -> ReadPlan:
        """The plan of a described series."""
        return cls(found.bytes, found.requests, workers, parse_bandwidth(bandwidth))

    @property
    def seconds(self) -> float:
        """Bytes by the bandwidth of all workers; waiting for answers and computing are not in it."""
        return self.bytes / (self.bandwidth * self.workers)
