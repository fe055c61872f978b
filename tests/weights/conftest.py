"""What tests of scans share."""

import pytest

from normscope.checkpoints.base import Checkpoint
from normscope.checkpoints.extents import TableCheckpoint


@pytest.fixture
def reads(monkeypatch):
    """Bytes that have been read, by (digest of the checkpoint, tensor)."""
    counts = {}
    plain = TableCheckpoint.read

    def read(self: Checkpoint, name: str, start: int, stop: int):
        counts[self.digest, name] = counts.get((self.digest, name), 0) + stop - start
        return plain(self, name, start, stop)

    monkeypatch.setattr(TableCheckpoint, "read", read)
    return counts
