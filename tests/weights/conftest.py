"""What tests of scans share."""

import pytest

from normscope.checkpoints.base import WIDTHS
from normscope.weights.scan import walk


@pytest.fixture
def reads(monkeypatch):
    """Bytes that have been read for the sums, by (digest of the checkpoint, tensor).

    What the inventory looks at to tell constants from parameters is not counted.
    """
    counts = {}
    plain = walk.read_elements

    def read(checkpoint, name, cut, dtype):
        size = (cut[1] - cut[0]) * WIDTHS[checkpoint.tensors[name].dtype]
        counts[checkpoint.digest, name] = counts.get((checkpoint.digest, name), 0) + size
        return plain(checkpoint, name, cut, dtype)

    monkeypatch.setattr(walk, "read_elements", read)
    return counts
