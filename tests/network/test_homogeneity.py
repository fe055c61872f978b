"""Degrees: the paper's component table row by row, norm placements, slope against Euler."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from normscope.errors import UsageError
from normscope.network.measuring.homogeneity import Curve, homogeneity, log_norm, slope_interval
from normscope.network.running.scaling import scaled
from tests.network.models import HandWritten, hugging_face, token_batch


class Lifted(nn.Module):
    """k linear layers without bias in front of a component: its input is k-homogeneous."""

    def __init__(self, k, component, width=6):
        super().__init__()
        self.lift = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(k)))
        for layer in self.lift:  # large enough for the norm's eps to be nothing
            layer.weight.data.mul_(8)
        self.component = component

    def forward(self, x):
        return self.component(self.lift(x))


class Bias(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return x + self.bias


class Pair(nn.Module):
    """Two branches of given degrees, added or multiplied."""

    def __init__(self, one, two, join, width=6):
        super().__init__()
        self.one, self.two = (Lifted(k, nn.Identity(), width) for k in (one, two))
        self.join = join

    def forward(self, x):
        return self.join(self.one(x), self.two(x))


def plain_norm():
    return nn.LayerNorm(6, elementwise_affine=False)


def gain_norm():
    norm = nn.LayerNorm(6)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


TABLE = {  # name: (degree in → degree out), every row of the paper's table
    **{f"linear {k}→{k + 1}": (lambda k=k: Lifted(k, nn.Linear(6, 6, bias=False)), k + 1) for k in range(3)},
    "bias 1→1": (lambda: Lifted(1, Bias()), 1),
    "affine 0→1": (lambda: Lifted(0, nn.Linear(6, 6)), 1),
    **{f"layer norm {k}→0": (lambda k=k: Lifted(k, plain_norm()), 0) for k in (1, 2, 3)},
    **{f"layer norm with gain {k}→1": (lambda k=k: Lifted(k, gain_norm()), 1) for k in (0, 1, 2, 3)},
    **{f"relu {k}→{k}": (lambda k=k: Lifted(k, nn.ReLU()), k) for k in (1, 2)},
    **{f"sum ({k},{k})→{k}": (lambda k=k: Pair(k, k, torch.add), k) for k in (1, 2)},
    "product (1,2)→3": (lambda: Pair(1, 2, torch.mul), 3),
    "product (2,2)→4": (lambda: Pair(2, 2, torch.mul), 4),
}


@pytest.mark.parametrize("row", TABLE)
def test_component_table(row):
    build, degree = TABLE[row]
    torch.manual_seed(0)
    found = homogeneity(build().double(), [torch.randn(4, 6).double()]).output
    assert found.degree == pytest.approx(degree, abs=1e-3)
    assert found.low <= found.degree <= found.high
    assert found.euler == pytest.approx(degree, abs=1e-3)
    assert found.residual < 1e-2 and found.exists
    assert found.cosine == pytest.approx([1.0] * len(found.c), abs=1e-3)


@pytest.mark.parametrize("squash", [nn.Softmax(-1), nn.Sigmoid(), nn.Tanh()])
def test_squashing_functions_are_approximately_of_degree_zero(squash):
    """At a large norm; what is left at c = 1 falls off exponentially with the norm."""
    torch.manual_seed(0)
    model, x = Lifted(1, squash).double(), torch.randn(4, 6).double()
    small = homogeneity(model, [x]).output
    with scaled(model, 2.0**10):
        large = homogeneity(model, [x]).output
    assert large.degree == pytest.approx(0, abs=1e-3) and large.euler == pytest.approx(0, abs=1e-2)
    assert large.exists and not small.exists and small.residual > large.residual


def test_a_sum_of_unequal_degrees_has_none():
    torch.manual_seed(0)
    found = homogeneity(Pair(1, 2, torch.add).double(), [torch.randn(4, 6).double()]).output
    assert not found.exists


class Placed(nn.Module):
    """An encoder with the norm in one of three places, and biases that really are on or off everywhere."""

    def __init__(self, placement, bias, layers=2, width=16):
        super().__init__()
        self.lift = nn.Linear(width, width, bias=bias)
        self.layers = nn.ModuleList(PlacedLayer(placement, bias, width) for _ in range(layers))

    def forward(self, x):
        x = self.lift(x)
        for layer in self.layers:
            x = layer(x)
        return x


class PlacedLayer(nn.Module):
    def __init__(self, placement, bias, width):
        super().__init__()
        self.placement = placement
        self.attention = nn.MultiheadAttention(width, 2, bias=bias, batch_first=True)
        self.feed = nn.Sequential(
            nn.Linear(width, width, bias=bias), nn.ReLU(), nn.Linear(width, width, bias=bias)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width, bias=bias) for _ in range(2))
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                nn.init.normal_(parameter, 1.0 if name.endswith("weight") else 0.0, 0.3)

    def forward(self, x):
        for norm, sublayer in zip(self.norms, (self.attend, self.feed), strict=True):
            x = self.place(x, norm, sublayer)
        return x

    def attend(self, x):
        return self.attention(x, x, x, need_weights=False)[0]

    def place(self, x, norm, sublayer):
        if self.placement == "paper":
            return x + norm(sublayer(x))
        return x + sublayer(norm(x)) if self.placement == "pre" else norm(x + sublayer(x))


def large(model, x):
    with scaled(model, 2.0**12):
        return homogeneity(model, [x], curve=Curve(scales=tuple(2.0**n for n in range(6)), reference=2.0**8))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("placement", ["paper", "pre", "post"])
def test_norm_placements(placement, bias):
    """Degrees at large norm.

    The paper's placement keeps degree 1; today's pre-norm has sublayers of degree 3 (gain, two
    matrices) that drown a residual of degree 1; post-norm ends in a norm with gain, degree 1.
    """
    torch.manual_seed(0)
    model, x = Placed(placement, bias).double(), torch.randn(3, 5, 16).double()
    found = large(model, x)
    assert [row.module for row in found.degrees] == ["layers.input", "layers.0", "layers.1", "output"]
    expected = {"paper": 1, "pre": 3, "post": 1}[placement]
    assert found.output.degree == pytest.approx(expected, abs=0.02)
    assert found.output.exists
    assert found.degrees[0].degree == pytest.approx(1, abs=1e-6)


def test_a_classifier_adds_one():
    torch.manual_seed(0)
    model = nn.Sequential(Placed("paper", False), nn.Linear(16, 3, bias=False)).double()
    found = large(model, torch.randn(3, 5, 16).double())
    assert found.output.degree == pytest.approx(2, abs=0.02) and found.output.exists


def test_the_bias_switch_reaches_every_layer():
    counts = [
        sum("bias" in name for name, _ in Placed("paper", bias).named_parameters()) for bias in (False, True)
    ]
    assert counts[0] == 0 and counts[1] > 10


def test_without_bias_and_softmax_the_direction_never_turns_with_bias_it_does():
    torch.manual_seed(0)
    x = torch.randn(3, 6).double()
    for bias in (False, True):
        model = nn.Sequential(nn.Linear(6, 6, bias=bias), nn.ReLU(), nn.Linear(6, 6, bias=bias)).double()
        found = homogeneity(model, [x]).output
        assert (min(found.cosine) > 1 - 1e-9) is not bias
        assert found.exists is not bias


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(0, 100))
def test_slope_and_euler_agree_for_deep_linear_networks(depth, seed):
    torch.manual_seed(seed)
    model = Lifted(depth, nn.Identity()).double()
    found = homogeneity(model, [torch.randn(2, 6).double()]).output
    assert found.degree == pytest.approx(depth) and found.euler == pytest.approx(depth)


def test_slope_interval_against_scipy():
    from scipy import stats

    x, rng = np.log(2.0 ** np.arange(9)), np.random.default_rng(0)
    y = 1.7 * x + 0.3 + rng.normal(0, 0.1, 9)
    slope, half = slope_interval(x, y)
    reference = stats.linregress(x, y)
    assert slope == pytest.approx(reference.slope)
    assert half == pytest.approx(reference.stderr * stats.t.ppf(0.975, 7))


def test_log_norm_of_values_whose_squares_overflow():
    assert log_norm(torch.tensor([3e30, 4e30])) == pytest.approx(math.log(5e30))
    assert log_norm(torch.zeros(3)) == -math.inf


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_hugging_face_models(family):
    pytest.importorskip("transformers")
    model = hugging_face(family).double()
    flags = [p.requires_grad_(False).requires_grad for p in model.parameters()]
    found = homogeneity(model, [token_batch(family)])
    assert found.output.module == "output" and len(found.degrees) == (7 if family == "t5" else 4)
    assert [p.requires_grad for p in model.parameters()] == flags
    assert all(p.grad is None for p in model.parameters())
    assert all(math.isfinite(row.degree) and math.isfinite(row.euler) for row in found.degrees)


def test_a_slope_needs_three_scales():
    with pytest.raises(UsageError, match="three different scales"):
        homogeneity(HandWritten(), [torch.zeros(1, 3, dtype=torch.long)], curve=Curve(scales=(1.0, 2.0)))
