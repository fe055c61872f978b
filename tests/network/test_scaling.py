"""Scaling is exact, complete, and leaves no trace."""

from __future__ import annotations

import os
import random
import signal

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.overrides import TorchFunctionMode

from normscope.errors import ModelError, ScaleOverflow, UsageError
from normscope.network.running.scaling import check_scale, rising, scaled

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16}


def bits(model):
    """Every parameter's raw bits, so that −0 and the kinds of NaN are distinguished too."""
    return [p.detach().clone().contiguous().view(BITS[p.element_size()]) for p in model.parameters()]


def same(one, two):
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


class Tied(nn.Module):
    """An embedding tied to its head, a transposed tie, and a slice of a parameter as another one."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight
        self.turned = nn.Parameter(self.embed.weight.data.t())
        whole = torch.randn(6, 3)
        self.whole, self.part = nn.Parameter(whole), nn.Parameter(whole[2:4])
        self.left, self.right = nn.Parameter(torch.randn(8)[:4]), nn.Parameter(torch.randn(8)[4:])


@st.composite
def modules(draw):
    dtype = draw(st.sampled_from(DTYPES))
    torch.manual_seed(draw(st.integers(0, 1000)))
    kinds = {
        "linear": lambda: nn.Linear(3, 5),
        "tied": Tied,
        "norm": lambda: nn.LayerNorm(4),
        "encoder": lambda: nn.TransformerEncoderLayer(8, 2, 8),
        "recurrent": lambda: nn.LSTM(3, 4),
    }
    names = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=3))
    model = nn.Sequential(*(kinds[name]() for name in names))
    model = model.to(dtype) if "tied" not in names else model
    with torch.no_grad():
        first = next(model.parameters())
        first[(0,) * first.dim()] = torch.finfo(first.dtype).tiny / 4  # subnormal
        first[(-1,) * first.dim()] = -0.0
    return model


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(modules(), st.integers(0, 12), st.integers(0, 2))
def test_every_value_times_c_and_back_bit_for_bit(model, exponent, inner):
    before, values = bits(model), [p.detach().double().clone() for p in model.parameters()]
    with scaled(model, 2.0**exponent) as same_model:
        assert same_model is model
        with scaled(model, 2.0**inner):
            for p, value in zip(model.parameters(), values, strict=True):
                assert torch.equal(p.double(), value * 2.0 ** (exponent + inner))
        for p, value in zip(model.parameters(), values, strict=True):
            assert torch.equal(p.double(), value * 2.0**exponent)
    assert same(bits(model), before)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(modules(), st.lists(st.integers(0, 12), max_size=5))
def test_from_one_scale_to_the_next_is_the_same_as_from_the_model_itself(model, exponents):
    before, values = bits(model), [p.detach().double().clone() for p in model.parameters()]
    with rising(model) as scaling:
        for exponent in exponents:
            scaling.check(2.0**exponent)
            scaling.set(2.0**exponent)
            for p, value in zip(model.parameters(), values, strict=True):
                assert torch.equal(p.double(), value * 2.0**exponent)
    assert same(bits(model), before)


def test_a_scale_is_checked_by_the_models_own_values_at_any_scale():
    model = nn.Linear(4, 4).half()
    model.weight.data[1, 2] = -5.0
    for set_first in (True, False):
        with rising(model) as scaling:
            if not set_first:
                scaling.check(2**13)
            scaling.set(2**10)
            scaling.check(2**13)
            with pytest.raises(ScaleOverflow, match=r"'weight' reaches 5, which times 2\^14"):
                scaling.check(2**14)


def test_scaling_down_is_exact_or_refused():
    model = nn.Linear(3, 3)
    before = bits(model)
    with scaled(model, 2.0**-20):
        assert not same(bits(model), before)
    assert same(bits(model), before)
    model.weight.data[0, 0] = 1e-37
    with pytest.raises(ScaleOverflow, match="too small for float32"), scaled(model, 2.0**-20):
        pass


def test_nothing_is_copied_and_buffers_stay():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
    places, mean = [p.data_ptr() for p in model.parameters()], model[1].running_mean.clone()
    with scaled(model, 8):
        assert [p.data_ptr() for p in model.parameters()] == places
        assert torch.equal(model[1].running_mean, mean)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_restored_when_something_is_raised_inside(error):
    model = Tied()
    before = bits(model)
    with pytest.raises(error), scaled(model, 2), scaled(model, 4):
        raise error
    assert same(bits(model), before)


class InterruptAt(TorchFunctionMode):
    """Raises KeyboardInterrupt just before or just after the n-th in-place multiplication."""

    def __init__(self, count, after):
        super().__init__()
        self.left, self.after = count, after

    def __torch_function__(self, func, types, args=(), kwargs=None):
        hit = func is torch.Tensor.mul_
        self.left -= hit
        if hit and self.left == 0 and not self.after:
            raise KeyboardInterrupt
        result = func(*args, **(kwargs or {}))
        if hit and self.left == 0 and self.after:
            raise KeyboardInterrupt
        return result


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("count", range(1, 9))
def test_interrupted_in_the_middle_of_scaling_or_of_restoring(count, after):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))  # four parameters: 1–4 scale, 5–8 restore
    before = bits(model)
    with pytest.raises(KeyboardInterrupt), InterruptAt(count, after), scaled(model, 16):
        pass
    assert same(bits(model), before)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("count", range(1, 17))
def test_interrupted_between_one_scale_and_the_next(count, after):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))  # four parameters: 1–12 scale, 13–16 restore
    before = bits(model)
    with pytest.raises(KeyboardInterrupt), InterruptAt(count, after), rising(model) as scaling:
        for scale in (2, 64, 8):
            scaling.set(scale)
    assert same(bits(model), before)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that sends signals")
def test_restored_after_real_signals_at_any_time_while_rising():
    old = signal.signal(signal.SIGALRM, signal.default_int_handler)
    model = nn.Sequential(*(nn.Linear(20, 20) for _ in range(40)))
    before, generator = bits(model), random.Random(0)
    try:
        for _ in range(40):
            with pytest.raises(KeyboardInterrupt), rising(model) as scaling:
                signal.setitimer(signal.ITIMER_REAL, generator.uniform(1e-4, 8e-3))
                while True:
                    for scale in (2, 64, 1024, 1):
                        scaling.set(scale)
            assert same(bits(model), before) and torch.is_grad_enabled()
    finally:
        signal.signal(signal.SIGALRM, old)


def test_restored_after_a_real_signal():
    model = nn.Sequential(*(nn.Linear(50, 50) for _ in range(20)))
    before = bits(model)
    with pytest.raises(KeyboardInterrupt), scaled(model, 16):
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(10**6))
    assert same(bits(model), before)


@pytest.mark.parametrize("c", [1000, 0, -2, float("inf"), float("nan"), 3])
def test_only_powers_of_two(c):
    with pytest.raises(UsageError, match="power of two"), scaled(nn.Linear(2, 2), c):
        pass


def test_large_powers_are_exact_too():
    model = nn.Linear(3, 3).double()
    before = bits(model)
    with scaled(model, 2.0**500):
        assert model.weight.abs().max() > 1e140
    assert same(bits(model), before)


def test_overflow_is_foreseen_and_names_a_dtype_that_suits():
    model = nn.Linear(4, 4).half()
    model.weight.data[1, 2] = -5.0
    before = bits(model)
    with (
        pytest.raises(ScaleOverflow, match=r"'weight' reaches 5.*float16.*use bfloat16"),
        scaled(model, 2**14),
    ):
        pass
    assert same(bits(model), before)
    check_scale(model.bfloat16(), 2**14)
    with pytest.raises(ScaleOverflow, match="use float64"):
        check_scale(model.float(), 2.0**126)
    with pytest.raises(ScaleOverflow, match="smaller scale"):
        check_scale(model.double(), 2.0**1023)


def test_what_cannot_be_scaled_is_named():
    with pytest.raises(ModelError, match=r"meta device.*load the weights"):
        check_scale(nn.Linear(2, 2, device="meta"), 2)
    model = nn.Linear(2, 2)
    model.codes = nn.Parameter(torch.zeros(3, dtype=torch.int8), requires_grad=False)
    with pytest.raises(ModelError, match="'codes' is quantised or integer \\(int8\\)"):
        check_scale(model, 2)
    model.codes = nn.Parameter(torch.zeros(3).to(torch.float8_e4m3fn), requires_grad=False)
    with pytest.raises(ModelError, match="float8_e4m3fn"):
        check_scale(model, 2)
    model = nn.Linear(2, 2)
    model.bias.data[0] = torch.nan
    with pytest.raises(ModelError, match="'bias' has NaN"):
        check_scale(model, 2)


@pytest.mark.filterwarnings("ignore")
def test_quantised_modules_are_refused():
    model = nn.Sequential(nn.Linear(4, 4))
    try:
        quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, torch.qint8)
    except (RuntimeError, AttributeError) as error:
        pytest.skip(f"this torch cannot quantise here: {error}")
    with pytest.raises(ModelError, match="is quantised"):
        check_scale(quantised, 2)


def test_partial_overlap_has_no_answer():
    model, memory = nn.Module(), torch.randn(10)
    model.one, model.two = nn.Parameter(memory[:6]), nn.Parameter(memory[4:])
    with pytest.raises(ModelError, match="overlap in memory"):
        check_scale(model, 2)


def test_inside_inference_mode():
    model = nn.Linear(3, 3)
    before = bits(model)
    with torch.inference_mode(), scaled(model, 4):
        model(torch.randn(2, 3))
    assert same(bits(model), before)
