"""Strided views against NumPy's own copy of them, cut anywhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from normscope.checkpoints import strided_view
from normscope.checkpoints.extents import Extent
from normscope.checkpoints.strided_view import StridedView


class Bytes(Extent):
    """The bytes of an array; remembers the longest range that was read at once."""

    def __init__(self, array):
        self.data, self.longest, self.dropped = array.tobytes(), 0, 0

    def read(self, start, stop):
        assert 0 <= start < stop <= len(self.data)
        self.longest = max(self.longest, stop - start)
        return self.data[start:stop]

    def drop(self, start, stop):
        self.dropped += stop - start


@st.composite
def views(draw):
    """An array, and a view of it that is permuted, sliced and perhaps repeated along an axis."""
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    width = draw(st.sampled_from([1, 2, 4, 8, 16]))
    count = int(np.prod(shape))
    array = np.arange(count * width, dtype=np.uint8).view(strided_view.element_type(width)).reshape(shape)
    view = array.transpose(draw(st.permutations(range(len(shape)))))
    view = view[tuple(slice(None, None, draw(st.integers(1, 3))) for _ in shape)]
    if draw(st.booleans()):
        view = np.broadcast_to(view, (draw(st.integers(2, 3)), *view.shape))
    return array, view, width


@given(views(), st.data(), st.sampled_from([16, 64, 1 << 20]), st.sampled_from([16, 40, 1 << 24]))
@settings(max_examples=300, deadline=None)
def test_a_strided_view_reads_like_a_copy(made, data, row, reach):
    array, view, width = made
    if view.size == 1:
        return
    whole = np.ascontiguousarray(view).tobytes()
    start = data.draw(st.integers(0, len(whole) - 1))
    stop = data.draw(st.integers(start + 1, len(whole)))
    base = Bytes(array)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strided_view, "ROW_BYTES", row)
        patch.setattr(strided_view, "REACH_BYTES", reach)
        span = StridedView(base, view.shape, tuple(s // width for s in view.strides), width)
        assert bytes(span.read(start, stop)) == whole[start:stop]
    assert base.longest <= reach
    assert base.dropped >= base.longest


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 4)])
def test_an_empty_view(shape):
    span = StridedView(Bytes(np.zeros(1)), shape, (1,) * len(shape), 4)
    assert bytes(span.read(0, 0)) == b""
    assert span.read_granularity >= 1
