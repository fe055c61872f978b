"""Models run in float64 without being converted: against real float64 copies, and what stays untouched."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from normscope.network.running.grouped_products import grouped_product
from normscope.network.running.precision import in_float64, no_float64
from normscope.network.running.scaling import scaled
from tests.network.models import FAMILIES, hugging_face, token_batch

pytest.importorskip("transformers")


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_like_a_converted_copy(family, attention):
    """Families with casts to float32 of their own differ from a converted copy by those casts, no more."""
    model, batch = hugging_face(family, attention), token_batch(family)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        with in_float64():
            wide = model(**batch)[0]
        exact = copy.deepcopy(model).double()(**batch)[0]
        plain = model(**batch)[0]
    casts = family in ("gpt_neox", "llama", "t5", "xlnet")
    assert wide.dtype == torch.float64 and plain.dtype == torch.float32
    assert torch.allclose(wide, exact, rtol=1e-5 if casts else 1e-13, atol=1e-5 if casts else 1e-13)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_casts_inside_the_model_do_not_narrow():
    """An RMS norm that casts to float32 overflows at 2^70 in float32, and does not here."""

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(4))

        def forward(self, x):
            x = (x * self.gain).to(torch.float32)
            x = x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True))
            return x.type_as(self.gain).softmax(-1, dtype=torch.float32)

    model, x = Norm(), torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    with scaled(model, 2.0**70), torch.no_grad():
        assert not (model(x) - model(2 * x)).abs().sum() > 0  # all zero: the squares are infinite
        narrow = model(x)
        with in_float64():
            wide = model(x)
    assert wide.dtype == torch.float64 and wide.max() > 0.3 > narrow.max()


def test_changes_in_place_and_new_tensors():
    class Busy(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 3))
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x):
            out = torch.zeros(x.shape, dtype=x.dtype)
            out[torch.tensor([0, 1])] = x[:2] @ self.weight
            out += torch.arange(3).float()
            self.seen.add_(out.mean(0))
            mask = torch.full((3,), torch.finfo(x.dtype).min, dtype=x.dtype).masked_fill(
                torch.tensor([True, False, False]), 0
            )
            pieces = torch.split(out, 1)
            return torch.cat([*pieces, torch.einsum("ij,jk->ik", out, self.weight)]) + mask.clamp_min_(-5)

    torch.manual_seed(0)
    model, x = Busy(), torch.randn(2, 3)
    exact = copy.deepcopy(model).double()(x.double())
    with in_float64():
        wide = model(x)
    assert wide.dtype == torch.float64 and torch.allclose(wide, exact, rtol=1e-12)
    assert model.seen.dtype == torch.float32 and model.weight.dtype == torch.float32


def test_half_and_complex_numbers():
    weight = nn.Parameter(torch.randn(4, 4).bfloat16())
    with in_float64(), torch.no_grad():
        assert (torch.ones(2, 4) @ weight).dtype == torch.float64
        assert torch.view_as_complex(torch.randn(3, 2)).dtype == torch.complex128
        assert torch.fft.rfft(torch.randn(4)).dtype == torch.complex128
        assert weight.dtype == torch.float64  # what the model's own checks see
        smallest = torch.finfo(weight.dtype).min
        assert torch.full((2,), smallest)[0] == smallest == torch.tensor([smallest])[0]
        assert torch.ones(2, dtype=torch.long).sum().dtype == torch.int64
    assert weight.dtype == torch.bfloat16


def test_devices_without_float64_are_named():
    assert no_float64(nn.Linear(2, 2)) is None
    assert "meta" in no_float64(nn.Linear(2, 2, device="meta"))


def test_products_by_groups_are_those_of_torch():
    """Mixtures of experts use a kernel that takes no float64."""
    ends = torch.tensor([2, 2, 6], dtype=torch.int32)
    shapes = [((6, 16), (3, 16, 32)), ((32, 6), (6, 16)), ((3, 16, 32), (32, 6)), ((3, 16, 32), (3, 32, 16))]
    for one, two in shapes:
        a, b = torch.randn(one), torch.randn(two)
        offs = None if len(one) == len(two) == 3 else ends
        found = grouped_product(a, b, offs)
        try:
            expected = torch.nn.functional.grouped_mm(a, b, offs=offs)
        except (RuntimeError, AttributeError):  # a layout that this version's kernel does not take
            continue
        torch.testing.assert_close(found, expected)
        with in_float64():
            wide = torch._grouped_mm(a, b, offs=offs)
        assert wide.dtype == torch.float64
        torch.testing.assert_close(wide.float(), expected)
