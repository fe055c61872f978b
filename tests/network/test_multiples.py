"""Parameters times any positive number: the same as a scaled copy of the model, and no trace afterwards."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import nn

from normscope.errors import ModelError, ScaleOverflow, UsageError
from normscope.network.measuring.homogeneity import Curve, homogeneity
from normscope.network.running.multiples import check_multiple, is_power_of_two, multiplied
from normscope.network.running.scaling import scaled
from tests.cli.calling import call, call_json
from tests.network.test_scaling import DTYPES, Tied, bits, modules, same

PAPER = Curve(scales=range(1, 11), reference=1000)


def scaled_copy(model, factor):
    """An independent model: its parameters are new numbers, each once, also if tied."""
    other = copy.deepcopy(model).requires_grad_(False)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(factor)
    return other


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(model=modules(), factor=st.floats(1e-3, 50))
@example(model=nn.Sequential(nn.Linear(2, 2).double()), factor=0.5)
def test_restored_bit_for_bit_also_when_an_exception_passes_through(model, factor):
    before = bits(model)
    rounds_to_one = abs(factor - 1) < 2**-8  # in bfloat16 a product this close is the old value
    with pytest.raises(KeyError), multiplied(model, factor):
        assert rounds_to_one or not same(before, bits(model))
        raise KeyError
    assert same(before, bits(model))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("factor", [3, 0.1, 1000, math.pi, 8])
def test_every_value_is_its_multiple(dtype, factor):
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 8).to(dtype)
    expected = bits(scaled_copy(model, factor))
    with multiplied(model, factor):
        assert same(bits(model), expected)


def test_shared_memory_is_multiplied_once():
    model = Tied()
    before, kept = [p.detach().clone() for p in model.parameters()], bits(model)
    with multiplied(model, 3):
        for parameter, value in zip(model.parameters(), before, strict=True):
            assert torch.equal(parameter, 3 * value)
    assert same(bits(model), kept)


def test_multiples_within_multiples():
    model = nn.Linear(3, 3)
    before = bits(model)
    with scaled(model, 4096), multiplied(model, 3), scaled(model, 2), multiplied(model, 7):
        assert not same(before, bits(model))
    assert same(before, bits(model))


def test_an_interrupt_during_the_multiplication_is_undone(monkeypatch):
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(3)))
    before, calls = bits(model), []
    original = torch.Tensor.mul_

    def interrupted(self, *args):
        calls.append(self)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, *args)

    monkeypatch.setattr(torch.Tensor, "mul_", interrupted)
    with pytest.raises(KeyboardInterrupt), multiplied(model, 3):
        raise AssertionError("not reached")
    assert len(calls) == 3 and same(before, bits(model))


def test_what_cannot_be_multiplied_is_refused_before_anything_changes():
    model = nn.Linear(3, 3)
    with torch.no_grad():
        model.weight[0, 0] = 2e38
    before = bits(model)
    with pytest.raises(ScaleOverflow, match="'weight' reaches 2e.38, which times 3 is more than float32 can"):
        check_multiple(model, 3)
    with pytest.raises(ScaleOverflow), multiplied(model, 3):
        raise AssertionError("not reached")
    with torch.no_grad():
        model.weight[0, 0] = math.nan
    with pytest.raises(ModelError, match="NaN or infinite"):
        check_multiple(model, 3)
    for wrong in (0, -1, math.inf, math.nan, "3", None):
        with pytest.raises(UsageError, match="a scale must be"):
            check_multiple(model, wrong)
    assert same(before[1:], bits(model)[1:])


def test_powers_of_two():
    assert [c for c in (0.25, 1, 1.5, 2, 3, 1000, 1024) if is_power_of_two(c)] == [0.25, 1, 2, 1024]


class Small(nn.Module):
    """Two layers and an output that is not homogeneous."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, 7), nn.Linear(7, 4)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def test_the_papers_curve_against_scaled_copies():
    torch.manual_seed(0)
    model, x = Small().double(), torch.randn(30, 5, dtype=torch.float64)
    before = bits(model)
    found = homogeneity(model, [x], curve=PAPER).output
    assert same(before, bits(model))
    assert found.c == tuple(map(float, range(1, 11)))
    limit = scaled_copy(model, 1000)(x)
    for c, norm, cosine in zip(found.c, found.norm, found.cosine, strict=True):
        states = scaled_copy(model, c)(x)
        assert norm == pytest.approx(float(states.norm()), rel=1e-12)
        assert cosine == pytest.approx(float(torch.cosine_similarity(states, limit).mean()), rel=1e-12)
    assert found.cosine[0] < found.cosine[-1] < 1


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_degree_of_a_homogeneous_network_is_the_same_at_any_scales(k):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(6, 6, bias=False) for _ in range(k))).double()
    found = homogeneity(model, [torch.randn(9, 6).double()], curve=PAPER).output
    assert found.degree == pytest.approx(k, abs=1e-9) and found.exists
    assert found.cosine == pytest.approx([1.0] * 10)


def test_a_larger_norm_is_the_model_scaled_first():
    torch.manual_seed(0)
    model, x = Small().double(), torch.randn(30, 5, dtype=torch.float64)
    inside = homogeneity(model, [x], curve=Curve(scales=(1, 3, 5), at=16))
    with scaled(model, 16):
        assert homogeneity(model, [x], curve=Curve(scales=(1, 3, 5))) == inside


def test_parameters_are_restored_when_the_model_fails_at_a_scale():
    class Refusing(Small):
        def forward(self, x):
            if float(self.first.weight.abs().max()) > 1:
                raise RuntimeError("too large")
            return super().forward(x)

    model = Refusing()
    before = bits(model)
    with pytest.raises(RuntimeError, match="too large"):
        homogeneity(model, [torch.randn(3, 5)], curve=PAPER)
    assert same(before, bits(model))


PROGRAM = """
import torch
def build():
    torch.manual_seed(0)
    layers = [torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True) for _ in range(2)]
    return torch.nn.Sequential(*layers), [torch.randn(3, 5, 8)]
"""


def test_the_command_takes_scales_and_a_reference(tmp_path):
    from normscope.run import Run

    (tmp_path / "program.py").write_text(PROGRAM)
    model, run = f"{tmp_path}/program.py:build", tmp_path / "run.db"
    found = call_json("homogeneity", model, "--scales", "0.5,1:10", "--reference", 1000, "--run", run)
    assert {tuple(row["c"]) for row in found["degrees"]} == {(0.5, *map(float, range(1, 11)))}
    with Run(run) as file:
        curves = file.artifacts("scaling-curve")
    assert {document["reference"] for document in curves.values()} == {1000.0}
    assert curves["output"]["cosine"] == found["degrees"][-1]["cosine"]
    for wrong in ("1:", "x", "1:2:3", "", "1.5:3"):
        done = call("homogeneity", model, "--scales", wrong)
        assert done.code == 2 and "--scales takes numbers such as 1,2.5,10" in done.stderr
    done = call("homogeneity", model, "--scales", "1,2,0")
    assert done.code == 2 and "a scale must be more than 0" in done.stderr


def test_blocks_that_are_named_are_used(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    model = f"{tmp_path}/program.py:build"
    found = call_json("homogeneity", model, "--blocks", "*.linear1")
    assert {row["module"] for row in found["degrees"]} >= {"0.linear1", "1.linear1"}
    done = call("homogeneity", model, "--blocks", "nothing.*")
    assert done.code == 2 and "matches no module" in done.stderr
