"""Between blocks, at the ends of arrays, at single non-finite values: torch and the kernel agree."""

import numpy as np
import pytest
import torch

from normscope.checkpoints.base import WIDTHS
from normscope.weights.sums import statistics
from normscope.weights.sums.live_sums import KeptTensors, copy_into
from normscope.weights.sums.statistics import RunningSums, Stretch, Sums, torch_sums
from tests.weights.test_statistics import WAYS, assert_same, draw, native_sums, raw, slow

native = pytest.mark.skipif(statistics._kernel is None, reason="the native kernel is not compiled here")
WITH_NAN = [name for name in WIDTHS if name != "float8_e4m3fn"]
SIDES = ["theta", "previous", "initial"]


def placed(part, offset):
    """The same bytes at `offset` bytes after an aligned address, up to the last byte of their memory."""
    memory = np.empty(offset + len(part), np.uint8)
    memory[offset:] = np.frombuffer(part, np.uint8)
    return memory[offset:]


@native
@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_any_address_and_any_end(dtype, offset):
    """Nothing is assumed of alignment; nothing behind the end is read (a sanitizer would stop here)."""
    for size in (1, 15, 16, 17, 127, 128, 129, 513, 4095, 4097):
        parts = [raw(draw(dtype, size, seed)) for seed in range(3)]
        there = [placed(part, offset) for part in parts]
        assert_same(native_sums(dtype, *there), torch_sums(dtype, *parts), scale=1.0)
        totals = RunningSums(1)
        totals.add(Stretch(dtype, there[2], there[1], [there[0]], b"\1"), 0, 64 * WIDTHS[dtype])
        assert_same(totals.rows()[0], torch_sums(dtype, *parts), scale=1.0)


@pytest.mark.parametrize("native", [pytest.param(True, marks=native), False])
@pytest.mark.parametrize("block", [64, 4096, 8192, 1 << 20])
def test_non_finite_values_of_all_blocks_are_counted(monkeypatch, native, block):
    """Each checkpoint has its own count, over all blocks, whichever they are in."""
    if not native:
        monkeypatch.setattr(statistics, "_kernel", None)
    states = [draw("float32", 20_000, seed) for seed in range(3)]
    places = [[0, 9_000, 9_001, 19_999], [100], [1, 4_095, 4_096, 12_000, 12_001, 12_002, 16_383]]
    for state, bad in zip(states, places, strict=True):
        state[torch.tensor(bad)] = float("nan")
    totals = RunningSums(3)
    totals.add(Stretch("float32", None, None, [raw(state) for state in states], b"\1\1\1"), 0, block * 4)
    assert [row.nonfinite for row in totals.rows()] == [4, 1, 7]
    for k, row in enumerate(totals.rows()):
        expected = slow(states[k], states[k - 1] if k else None, states[0])
        assert_same(row, expected, scale=row.sumsq)


@pytest.mark.parametrize("sums", WAYS)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16", "float8_e5m2"])
def test_one_side_alone_has_a_non_finite_value(sums, side, bad, dtype):
    """The pair is left out of what it takes part in, everything else stays, and only θ's own are counted."""
    parts = {name: draw(dtype, 8_192, seed) for seed, name in enumerate(SIDES)}
    clean = slow(*parts.values())
    for at in (5, 4_100, 8_191):
        parts[side][at] = float(bad)
    found = sums(dtype, *map(raw, parts.values()))
    assert_same(found, slow(*parts.values()), scale=clean.sumsq)
    assert found.nonfinite == (3 if side == "theta" else 0)
    if side != "theta":
        assert (found.sumsq, found.absmax) == pytest.approx((clean.sumsq, clean.absmax), rel=1e-7)


@pytest.mark.parametrize("sums", WAYS)
@pytest.mark.parametrize("dtype", WITH_NAN)
def test_all_of_it_non_finite(sums, dtype):
    theta = torch.full((5_000,), float("nan")).to(getattr(torch, dtype))
    other = draw(dtype, 5_000, 1)
    assert sums(dtype, raw(theta), raw(other), raw(other)) == Sums(nonfinite=5_000)


@pytest.mark.parametrize("sums", WAYS)
@pytest.mark.parametrize("at", [0, 127, 4_095, 4_096, 8_191, 8_192])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16", "float8_e4m3fn"])
def test_the_largest_magnitude_wherever_it_is(sums, at, sign, dtype):
    theta = draw(dtype, 8_193, 3)
    theta[at] = 3.5 * sign
    assert sums(dtype, raw(theta), None, None).absmax == 3.5


@pytest.mark.parametrize("sums", WAYS)
def test_a_jump_beyond_float32_between_two_checkpoints(sums):
    """θ is small and in float32's range, θ′ and θ₀ are not: their blocks are summed in float64."""
    theta = draw("float32", 4_096, 0)
    far = draw("float32", 4_096, 1, scale=1e30)
    found = sums("float32", raw(theta), raw(far), raw(far))
    assert_same(found, slow(theta, far, far), scale=found.sumsq_delta)


@native
def test_empty_tensors_have_no_address():
    empty, full = torch.empty(0), torch.arange(5.0)
    target = torch.zeros(5)
    assert copy_into(KeptTensors([torch.empty(0), target]), [empty, full])
    assert torch.equal(target, full)
    work = np.array([[1, 0, 0, 0, 0], [1, 5, full.data_ptr(), 0, 0]], np.int64)
    out = np.full((2, 6), 7.0)
    statistics._kernel.sums_many(work, out)
    assert out.tolist() == [[0.0] * 6, [30.0, 0.0, 0.0, 0.0, 4.0, 0.0]]
