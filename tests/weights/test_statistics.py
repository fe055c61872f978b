"""The sums compared with a plain float64 version, and their mathematical properties."""

import contextlib
import errno
import os
import subprocess
import sys
from array import array
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from normscope.checkpoints.base import WIDTHS
from normscope.weights.sums import statistics
from normscope.weights.sums.statistics import CODES, RunningSums, Stretch, Sums, add, torch_sums


def native_sums(dtype, theta, previous=None, initial=None):
    """One tensor by the kernel, which takes many by their addresses."""
    arrays = [None if part is None else np.frombuffer(part, np.uint8) for part in (theta, previous, initial)]
    places = [0 if array is None else array.ctypes.data for array in arrays]
    work = np.array([CODES[dtype], len(arrays[0]) // WIDTHS[dtype], *places], np.int64)
    out = np.zeros(6)
    statistics._kernel.sums_many(work, out)
    return Sums(*out[:5].tolist(), int(out[5]))


WAYS = [pytest.param(torch_sums, id="torch")]
if statistics._kernel is not None:
    WAYS.append(pytest.param(native_sums, id="native"))
sums = WAYS[-1].values[0]
SIZES = [0, 1, 7, 4095, 4096, 4097, 3 * 4096 + 5]


def draw(dtype, size, seed, scale=0.02):
    values = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale
    return values.to(getattr(torch, dtype))


def raw(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def slow(theta, previous=None, initial=None):
    """The definition, in float64, with non-finite values masked out."""
    x = theta.double().numpy()
    ok = np.isfinite(x)
    result = {"sumsq": (x[ok] ** 2).sum(), "absmax": np.abs(x[ok]).max(initial=0.0), "nonfinite": (~ok).sum()}
    if previous is not None:
        p = previous.double().numpy()
        both = ok & np.isfinite(p)
        delta = x[both] - p[both]
        result["dot"], result["sumsq_delta"] = (p[both] * delta).sum(), (delta**2).sum()
    if initial is not None:
        z = initial.double().numpy()
        both = ok & np.isfinite(z)
        result["dot_init"] = (z[both] * x[both]).sum()
    return Sums(**{name: float(value) for name, value in result.items()})


def assert_same(found, expected, scale, rel=1e-7):
    assert found.sumsq == pytest.approx(expected.sumsq, rel=rel)
    assert found.sumsq_delta == pytest.approx(expected.sumsq_delta, rel=rel)
    assert found.dot == pytest.approx(expected.dot, rel=rel, abs=rel * scale)
    assert found.dot_init == pytest.approx(expected.dot_init, rel=rel, abs=rel * scale)
    assert found.absmax == expected.absmax
    assert found.nonfinite == expected.nonfinite


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("sums", WAYS)
def test_the_sums_are_what_they_say(sums, dtype, size):
    theta, previous, initial = (draw(dtype, size, seed) for seed in range(3))
    found = sums(dtype, raw(theta), raw(previous), raw(initial))
    expected = slow(theta, previous, initial)
    assert_same(found, expected, scale=expected.sumsq)


@pytest.mark.parametrize("sums", WAYS)
@pytest.mark.parametrize("given_previous", [True, False])
@pytest.mark.parametrize("given_initial", [True, False])
def test_what_is_not_given_is_not_summed(sums, given_previous, given_initial):
    theta, previous, initial = (draw("bfloat16", 9000, seed) for seed in range(3))
    found = sums(
        "bfloat16",
        raw(theta),
        raw(previous) if given_previous else None,
        raw(initial) if given_initial else None,
    )
    expected = slow(theta, previous if given_previous else None, initial if given_initial else None)
    assert_same(found, expected, scale=expected.sumsq)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16", "float8_e5m2"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("sums", WAYS)
def test_non_finite_values_are_counted_and_left_out(sums, dtype, bad):
    theta, previous, initial = (draw(dtype, 10_000, seed) for seed in range(3))
    for tensor, places in ((theta, [3, 5000, 9999]), (previous, [3, 17, 6000]), (initial, [4])):
        tensor[torch.tensor(places)] = bad
    found = sums(dtype, raw(theta), raw(previous), raw(initial))
    assert found.nonfinite == 3
    assert_same(found, slow(theta, previous, initial), scale=found.sumsq)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e-12, 1e12, 1e25, 1e30])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("sums", WAYS)
def test_very_small_and_very_large_values_keep_their_precision(sums, dtype, scale):
    theta, previous, initial = (draw(dtype, 8200, seed, scale) for seed in range(3))
    found = sums(dtype, raw(theta), raw(previous), raw(initial))
    expected = slow(theta, previous, initial)
    assert_same(found, expected, scale=expected.sumsq)


def test_half_precision_subnormals_count():
    theta = torch.tensor([6e-8, 1e-7, 3e-5, -6e-5] * 4096, dtype=torch.float16)
    for way in (way.values[0] for way in WAYS):
        assert way("float16", raw(theta)).sumsq == pytest.approx(slow(theta).sumsq, rel=1e-7)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("sums", WAYS)
def test_equal_values_round_the_same_way_and_still_keep_seven_digits(sums, dtype):
    for value in torch.rand(100, generator=torch.Generator().manual_seed(0)).tolist():
        theta = torch.full((1 << 14,), value).to(getattr(torch, dtype))
        for others in ((), (raw(theta), raw(theta))):
            found, expected = sums(dtype, raw(theta), *others), slow(theta)
            assert found.sumsq**0.5 == pytest.approx(expected.sumsq**0.5, rel=1e-7)


@pytest.mark.parametrize("dtype", [name for name in WIDTHS if name.startswith("float8")])
@pytest.mark.parametrize("sums", WAYS)
def test_every_byte_of_a_float8(sums, dtype):
    """Each value in every lane of whole blocks: normal, subnormal, negative zero and NaN."""
    for byte in range(256):
        theta, other = (
            torch.full((4096,), n, dtype=torch.uint8).view(getattr(torch, dtype)) for n in (byte, 0x38)
        )
        found = sums(dtype, raw(theta), raw(other), raw(other))
        # Equal values are the worst there are: 1e-7 of a norm is 2e-7 of its square.
        assert_same(found, slow(theta, other, other), scale=found.sumsq, rel=2e-7)


class TestRunningSums:
    """Sums along a series compared with the sums of its pairs, block by block."""

    def by_pairs(self, dtype, states, wanted, block):
        width, size = WIDTHS[dtype], len(states[0])
        rows = []
        for k in (k for k, mark in enumerate(wanted) if mark):
            total = Sums()
            for at in range(0, size, block // width):
                cut = slice(at, at + block // width)
                before = raw(states[k - 1][cut]) if k else None
                total = add(total, sums(dtype, raw(states[k][cut]), before, raw(states[0][cut])))
            rows.append(total)
        return rows

    @pytest.mark.parametrize("native", [True, False])
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2"])
    @pytest.mark.parametrize("wanted", [[1, 1, 1, 1, 1], [0, 1, 0, 0, 1], [0, 0, 0, 0, 1]])
    @pytest.mark.parametrize("cut", [1, 2, 5])
    def test_along_a_series(self, monkeypatch, native, dtype, wanted, cut):
        if native and statistics._kernel is None:
            pytest.skip("the native kernel is not compiled here")
        block = 8192 * WIDTHS[dtype]
        states = [draw(dtype, 20_000, seed) for seed in range(5)]
        expected = self.by_pairs(dtype, states, wanted, block)
        if not native:
            monkeypatch.setattr(statistics, "_kernel", None)
        totals = RunningSums(sum(wanted))
        buffers = [raw(state) for state in states]
        initial = previous = None
        for at in range(0, 5, cut):
            part = Stretch(dtype, initial, previous, buffers[at : at + cut], bytes(wanted[at : at + cut]))
            totals.add(part, sum(wanted[:at]), block)
            initial, previous = initial or buffers[0], part.sources[-1]
        for found, row in zip(totals.rows(), expected, strict=True):
            assert_same(found, row, scale=row.sumsq)
            assert not native or found == row

    @pytest.mark.skipif(statistics._kernel is None, reason="the native kernel is not compiled here")
    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({0: 99}, "unknown dtype number"),
            ({1: b"1234"}, "differ in length"),
            ({2: b"1234"}, "differ in length"),
            ({3: [b"12345678", None]}, "may not be None"),
            ({3: [b"12345678", b"1234"]}, "differ in length"),
            ({3: []}, "expected one mark"),
            ({4: b"\1"}, "expected one mark"),
            ({5: 0}, "expected a whole number"),
            ({5: 3}, "expected a whole number"),
            ({6: bytearray(95)}, "too few rows"),
        ],
    )
    def test_the_kernel_refuses_what_does_not_fit(self, changed, message):
        given = [1, b"12345678", b"12345678", [b"12345678"] * 2, b"\1\1", 4, bytearray(96)]
        statistics._kernel.chain(*given)
        for place, value in changed.items():
            given[place] = value
        with pytest.raises(ValueError, match=message):
            statistics._kernel.chain(*given)

    @pytest.mark.skipif(statistics._kernel is None, reason="the native kernel is not compiled here")
    @pytest.mark.parametrize("block", [4, 4096, 1 << 16, 1 << 20])
    @pytest.mark.parametrize("files", [(0,), (1, 2), (0, 1, 2, 3), (4, 5), (0, 5)])
    def test_files_and_memory_give_the_same_bits(self, tmp_path, block, files):
        """Sources 0 to 3 along the series, 4 is initial and 5 previous; those in `files` are read."""
        count = 300 if block == 4 else 50_001
        states = [raw(draw("float32", count, seed)) for seed in range(6)]
        path = tmp_path / "all"
        path.write_bytes(b"x" * 3 + b"".join(states))
        size = len(states[0])
        with path.open("rb") as file:
            places = [(file.fileno(), 3 + size * i, size) for i in range(6)]
            for ends in (True, False):
                found = []
                for given in (states, [places[i] if i in files else states[i] for i in range(6)]):
                    totals, seconds = array("d", bytes(4 * 48)), array("d", bytes(4 * 8))
                    last = (given[4], given[5]) if ends else (None, None)
                    room = bytearray(3 * (block + 64))
                    statistics._kernel.chain(1, *last, given[:4], b"\1\0\1\1", block, totals, room, seconds)
                    assert min(seconds) > 0
                    found.append(totals.tobytes())
                assert found[0] == found[1]

    @pytest.mark.skipif(statistics._kernel is None, reason="the native kernel is not compiled here")
    def test_files_that_cannot_be_read(self, tmp_path):
        path = tmp_path / "x"
        path.write_bytes(bytes(1000))
        chain, totals, good = statistics._kernel.chain, bytearray(96), bytes(800)
        with path.open("rb") as file:
            number = file.fileno()
            for place, (ends, sources) in {
                1: ((None, None), [good, (number, 400, 800)]),
                -2: (((number, 900, 800), good), [good, good]),
                -1: ((good, (number, 201, 800)), [good, (number, 0, 800)]),
            }.items():
                with pytest.raises(statistics._kernel.Unreadable) as error:
                    chain(1, *ends, sources, b"\1\1", 400, totals, bytearray(3 * 448))
                assert error.value.args == (place, 0)
            for sources, room, clock, message in [
                ([(number, 0, 800)] * 2, bytearray(1199), bytearray(16), "three blocks"),
                ([(number, 0, 800)] * 2, bytearray(3 * 448), bytearray(15), "too few places"),
                ([(number, -1, 800)] * 2, bytearray(3 * 448), bytearray(16), "negative"),
                ([(number, 0, 800), (number, 0, 804)], bytearray(3 * 448), bytearray(16), "differ in length"),
            ]:
                with pytest.raises(ValueError, match=message):
                    chain(1, None, None, sources, b"\1\1", 400, totals, room, clock)
        with pytest.raises(statistics._kernel.Unreadable) as error:
            chain(1, None, None, [good, (1 << 30, 0, 800)], b"\1\1", 400, totals, bytearray(3 * 448))
        assert error.value.args == (1, errno.EBADF)

    @pytest.mark.skipif(statistics._kernel is None, reason="the native kernel is not compiled here")
    @pytest.mark.parametrize("lengths", [[8, 8, 8], [8, 8, 4]], ids=["summed", "refused"])
    def test_the_kernel_gives_back_what_it_borrowed(self, lengths):
        """Memory that it still held could not be freed, nor a mapped file be closed."""
        buffers = [bytearray(length) for length in lengths]
        with (
            contextlib.nullcontext() if len(set(lengths)) == 1 else pytest.raises(ValueError, match="length")
        ):
            statistics._kernel.chain(1, buffers[0], None, buffers[1:], b"\1\1", 4, bytearray(96))
        for buffer in buffers:
            buffer.clear()  # BufferError while it is borrowed

    @pytest.mark.skipif(statistics._kernel is None, reason="the native kernel is not compiled here")
    def test_the_kernel_refuses_what_is_not_a_buffer(self):
        for buffers in (5, [b"1234", 7]):
            with pytest.raises(TypeError):
                statistics._kernel.chain(1, None, None, buffers, b"\1\1", 4, bytearray(96))


@given(st.integers(0, 20_000), st.integers(0, 20_000), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_sums_add_up_over_any_cut(size, cut, seed):
    cut = min(cut, size)
    theta, previous, initial = (draw("float32", size, seed + k) for k in range(3))
    whole = sums("float32", raw(theta), raw(previous), raw(initial))
    left = sums("float32", raw(theta[:cut]), raw(previous[:cut]), raw(initial[:cut]))
    right = sums("float32", raw(theta[cut:]), raw(previous[cut:]), raw(initial[cut:]))
    assert_same(add(left, right), whole, scale=max(whole.sumsq, 1e-300))


@given(st.integers(0, 2**32), st.floats(1e-6, 1.0))
@settings(max_examples=30, deadline=None)
def test_the_norm_budget_is_exact(seed, size_of_update):
    previous = draw("float32", 6000, seed)
    theta = previous + draw("float32", 6000, seed + 1) * size_of_update
    found = sums("float32", raw(theta), raw(previous), None)
    before = sums("float32", raw(previous), None, None)
    assert found.sumsq - before.sumsq == pytest.approx(
        2 * found.dot + found.sumsq_delta, abs=2e-7 * before.sumsq
    )


def test_a_tiny_update_is_not_lost():
    """‖Δ‖² of an update a millionth of θ: computed from θ − θ′, not from a difference of norms."""
    previous = draw("float64", 5000, 0)
    theta = previous * (1 + 1e-9)
    found = sums("float64", raw(theta), raw(previous), None)
    delta = (theta - previous).numpy()
    assert found.sumsq_delta == pytest.approx(float(delta @ delta), rel=1e-12)


@pytest.mark.skipif(statistics._kernel is None, reason="the native kernel is not compiled here")
@pytest.mark.parametrize(
    ("work", "rows"), [([99, 0, 0, 0, 0], 1), ([1, -1, 0, 0, 0], 1), ([1, 0, 0, 0], 1), ([1, 0, 0, 0, 0], 2)]
)
def test_the_kernel_refuses_what_does_not_fit(work, rows):
    with pytest.raises(ValueError, match="rows of five int64"):
        statistics._kernel.sums_many(np.array(work, np.int64), np.zeros(6 * rows))


def kernel_with(instruction_set):
    """What a process says that asks for an instruction set: the one that its kernel uses, or an error."""
    script = "from normscope.weights.sums.statistics import backend; print(backend())"
    environment = {**os.environ, "NORMSCOPE_INSTRUCTION_SET": instruction_set}
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, env=environment, capture_output=True, text=True
    )
    return done.stdout.strip() or done.stderr


@pytest.mark.slow
@pytest.mark.skipif(statistics._kernel is None, reason="the native kernel is not compiled here")
@pytest.mark.parametrize("instruction_set", ["baseline", "avx2"])
def test_all_of_this_on_older_processors(instruction_set):
    """Run these tests again in a process whose kernel uses an older instruction set."""
    if kernel_with(instruction_set) != f"native ({instruction_set})":
        pytest.skip(f"this processor does not have {instruction_set}")
    files = [__file__, str(Path(__file__).with_name("test_kernel_blocks.py"))]
    words = ["-q", "-p", "no:cacheprovider", "-k", "(native or RunningSums or address) and not older"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *files],
        check=False,
        env={**os.environ, "NORMSCOPE_INSTRUCTION_SET": instruction_set},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


@pytest.mark.skipif(statistics._kernel is None, reason="the native kernel is not compiled here")
def test_an_instruction_set_that_does_not_exist():
    assert "must be baseline, avx2 or avx512; got avx1024" in kernel_with("avx1024")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_two_hundred_million_elements_to_seven_digits(dtype):
    theta = torch.empty(200_000_000, dtype=getattr(torch, dtype))
    for part, seed in zip(theta.split(10_000_000), range(20), strict=True):
        part.copy_(draw("float32", len(part), seed))
    expected = sum(float(part.double().square().sum()) for part in theta.split(1_000_000))
    found = sums(dtype, theta.view(torch.uint8).numpy(), None, None)
    assert found.sumsq**0.5 == pytest.approx(expected**0.5, rel=1e-7)
