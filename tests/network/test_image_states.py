"""States that are images: whatever their layout, they are rows of the width that the model has."""

import pytest
import torch
from torch import nn

from normscope.errors import ModelError
from normscope.network.measuring.saturation import saturation
from normscope.network.running.batches import as_batch
from normscope.network.running.eval_mode import evaluating
from normscope.network.watching.block_lists import find_blocks
from normscope.network.watching.hidden_states import real_tokens, visiting

tf = pytest.importorskip("transformers")
WIDTHS = [16, 32, 40, 48]
SIZES = {"hidden_sizes": WIDTHS, "depths": [2, 2, 2, 2]}


def rows(model, *images):
    """The states at every edge between blocks, as rows, by module."""
    batch, found = as_batch(images), {}
    lists = find_blocks(model, batch)

    def visit(edge, states):
        found[edge.module] = real_tokens(states, edge, batch).clone()

    with evaluating(model), visiting(model, lists, visit):
        batch.run(model)
    return found


@pytest.mark.parametrize(
    ("model", "widths"),
    [
        (lambda: tf.ConvNextModel(tf.ConvNextConfig(**SIZES)), [16, *WIDTHS]),
        (lambda: tf.ResNetModel(tf.ResNetConfig(embedding_size=16, **SIZES)), [16, *WIDTHS]),
        (
            lambda: tf.SwinModel(tf.SwinConfig(embed_dim=16, depths=[2, 1], num_heads=[2, 4], image_size=96)),
            [16, 16, 16, 32],
        ),
    ],
    ids=["ConvNeXt", "ResNet", "Swin"],
)
def test_rows_are_as_wide_as_the_model_says(model, widths):
    torch.manual_seed(0)
    found = rows(model(), torch.randn(2, 3, 96, 96))
    assert [each.shape[1] for each in found.values()] == widths


class Images(nn.Module):
    """Two blocks that add something to images whose width is the second axis, or the last."""

    def __init__(self, width, last):
        super().__init__()
        self.last = last
        layer = nn.Linear(width, width) if last else nn.Conv2d(width, width, 1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Tanh(), layer) for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x


@pytest.mark.parametrize("last", [False, True])
def test_both_layouts_have_the_same_rows(last):
    """A convolution of one pixel is a linear layer; no two axes of the images have one size."""
    torch.manual_seed(0)
    one, other = Images(6, False), Images(6, True)
    for first, second in zip(one.parameters(), other.parameters(), strict=True):
        second.data = first.data.reshape(second.shape)
    images = torch.randn(2, 6, 5, 7)
    second, final = rows(one, images), rows(other, images.permute(0, 2, 3, 1))
    for a, b in zip(second.values(), final.values(), strict=True):
        assert a.shape == (70, 6)
        assert torch.allclose(a, b, atol=1e-6)


def test_axes_that_cannot_be_told_apart_are_an_error():
    torch.manual_seed(0)
    model = tf.ConvNextModel(tf.ConvNextConfig(**SIZES))
    with pytest.raises(ModelError, match=r"\[2, 16, 16, 16\].*measure images of another size"):
        saturation(model, [{"pixel_values": torch.randn(2, 3, 64, 64)}])
    found = saturation(model, [{"pixel_values": torch.randn(2, 3, 96, 96)}])
    assert [layer.tokens for layer in found.layers][-1] == 2 * 3 * 3
