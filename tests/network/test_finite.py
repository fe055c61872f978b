"""NaN of the model itself is told from NaN of the scaled network, and named."""

from __future__ import annotations

import math

import pytest
import torch

from normscope.network.measuring.homogeneity import homogeneity
from normscope.network.running.batches import Batch, as_batch
from normscope.network.watching.block_lists import find_blocks
from normscope.network.watching.finite import blame_for_nonfinite, first_nonfinite
from tests.network.models import HandWritten
from tests.network.test_structures import clip

IDS = torch.randint(0, 50, (2, 6), generator=torch.Generator().manual_seed(0))


def broken(model, where):
    """The model with a NaN in the output of one block."""
    model.get_submodule(where).register_forward_hook(
        lambda _, args, output: output.index_fill(1, torch.tensor([3]), math.nan)
    )
    return model


def test_the_first_block_with_a_nan_is_named():
    batch = as_batch(IDS)
    model = HandWritten(layers=3)
    lists = find_blocks(model, batch)
    assert (
        first_nonfinite(model, [batch], lists) is None and blame_for_nonfinite(model, [batch], lists) is None
    )
    broken(model, "blocks.1")
    assert first_nonfinite(model, [batch], lists) == "blocks.1"
    assert "first at blocks.1: this is not caused by scaling" in blame_for_nonfinite(model, [batch], lists)


def test_padding_may_be_nan():
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[:, 3] = False
    batch = Batch((IDS,), mask=mask)
    model = HandWritten(layers=3)
    lists = find_blocks(model, batch)
    broken(model, "blocks.2")
    assert first_nonfinite(model, [batch], lists) is None


def test_homogeneity_blames_the_model():
    result = homogeneity(broken(HandWritten(layers=2), "blocks.0"), [IDS])
    (warning,) = result.warnings
    assert "the model itself" in warning and "blocks.0" in warning and "float64" not in warning


def test_homogeneity_names_the_states_without_a_slope():
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, batch, _, _ = clip()
    result = homogeneity(model.eval(), [batch])
    assert math.isnan(result.output.degree)
    (warning,) = result.warnings
    assert warning.startswith("the slope of output is unknown: states are zero or not finite from c = ")


def test_homogeneity_names_layers_that_are_zero():
    model = HandWritten(layers=2)
    model.blocks[1].norm.weight.data.zero_()
    model.blocks[1].norm.bias.data.zero_()
    (warning,) = homogeneity(model, [IDS]).warnings
    assert "blocks.1 and output" in warning or "blocks.1, output" in warning
    assert "zero at every scale" in warning
