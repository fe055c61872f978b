"""What tests of scans share."""

import pytest

from normscope.checkpoints.base import WIDTHS
from normscope.weights.reading import walk


@pytest.fixture
def reads(monkeypatch):
    """Bytes that have been read for the sums, by (digest of the checkpoint, tensor).

    What the inventory looks at to tell constants from parameters is not counted.
    """
    counts = {}
    plain = walk._ChainMember.read

    def read(member, start, stop, dtype):
        key = member.checkpoint.digest, member.name
        counts[key] = counts.get(key, 0) + (stop - start) * WIDTHS[member.dtype]
        return plain(member, start, stop, dtype)

    monkeypatch.setattr(walk._ChainMember, "read", read)
    return counts
