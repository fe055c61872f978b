"""Blocks are found in any structure, and their states are those of the residual stream."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from normscope.errors import ModelError, UsageError
from normscope.network.measuring.saturation import saturation
from normscope.network.running.batches import Batch, as_batch, sample, some_rows
from normscope.network.running.eval_mode import evaluating
from normscope.network.watching.block_lists import attention_note, find_blocks, state_note
from normscope.network.watching.hidden_states import visiting
from tests.network.models import HandWritten, hugging_face, token_batch
from tests.network.structures import Attention, Block, HeadList, ListBlocks, Stack, feed_forward

IDS = torch.randint(0, 50, (2, 6), generator=torch.Generator().manual_seed(0))


def test_only_a_batch_of_rows_is_cut_by_rows():
    """Whose first axis is the batch is known from a mask or from token ids under their name, if all agree."""
    large = Batch((torch.zeros(4, 9, 3),), mask=torch.ones(4, 9, dtype=torch.bool))
    ids, mask = {"input_ids": IDS}, torch.ones(2, 6, dtype=torch.bool)
    for whole in ({"input_ids": IDS[0]}, {"x": IDS}, {**ids, "pairs": torch.zeros(6, 6)}, (IDS,)):
        batch = as_batch(whole)
        assert sample([batch]) is batch
    for rows in (Batch((), ids), Batch((IDS,), mask=mask), Batch((), {**ids, "sizes": torch.ones(2)}, mask)):
        one = sample([large, rows] if rows.mask is not None else [rows])
        cut = [*one.args, *one.kwargs.values(), *([one.mask] if one.mask is not None else [])]
        assert all(len(value) == 1 for value in cut) and torch.equal(cut[0], IDS[:1])
    (flat,) = some_rows([as_batch({"input_ids": IDS[0]})], 1)
    assert torch.equal(flat.kwargs["input_ids"], IDS[0])


def states(model, batch, lists=None):
    """The states at every edge, by module, in order."""
    batch = as_batch(batch)
    found = {}
    lists = find_blocks(model, batch) if lists is None else lists
    with evaluating(model), visiting(model, lists, lambda edge, x: found.update({edge.module: x.clone()})):
        batch.run(model)
    return found


@pytest.mark.parametrize("end", ["norm", "pool", "plain"])
@pytest.mark.parametrize("kind", ["prenorm", "norms", "in_place", "dict", "postnorm"])
def test_blocks_that_are_lists_give_the_residual_stream(kind, end):
    torch.manual_seed(0)
    model = ListBlocks(kind, end=end)
    found = states(model, IDS)
    names = ["layers.input", "layers.0", "layers.1", "layers.2"]
    if kind == "dict" and end == "pool":  # a scaled residual before a pooled head: nothing shows that state
        names.pop()
        assert "after layers.2 is not visible" in state_note(find_blocks(model, as_batch(IDS)))
    else:
        assert state_note(find_blocks(model, as_batch(IDS))) is None
    assert list(found) == names
    for name, expected in zip(names, model.seen, strict=False):
        torch.testing.assert_close(found[name], expected)


@pytest.mark.parametrize("kind", ["prenorm", "norms", "postnorm"])
def test_one_block_that_is_a_list(kind):
    model = ListBlocks(kind, depth=1)
    found = states(model, IDS)
    torch.testing.assert_close(found["layers.0"], model.seen[1])
    assert list(found) == ["layers.input", "layers.0"]


def test_a_residual_added_by_the_model_belongs_to_the_state():
    class Alternating(Stack):
        def forward(self, ids):
            x = self.embed(ids)
            self.seen = [x]
            for layer in self.layers:
                x = x + layer(x)
                self.seen.append(x)
            return x

    model = Alternating(Attention(), feed_forward(), Attention(), feed_forward())
    found = states(model, IDS)
    assert list(found) == ["layers.input", "layers.0", "layers.1", "layers.2", "layers.3"]
    for one, two in zip(found.values(), model.seen, strict=True):
        torch.testing.assert_close(one, two)


def test_called_blocks_give_their_outputs():
    model = Stack(*(Block(Attention()) for _ in range(3)), norm=True)
    found = states(model, IDS)
    for one, two in zip(found.values(), model.seen, strict=True):
        assert torch.equal(one, two)


def test_heads_in_a_list_are_not_blocks():
    model = Stack(*(Block(HeadList(name)) for name in ("heads", "units")))
    (blocks,) = find_blocks(model, as_batch(IDS))
    assert blocks.blocks == ("layers.0", "layers.1")


@pytest.mark.parametrize("kind", ["after_sum", "linear"])
def test_attention_that_is_not_visible_still_has_layers(kind):
    model = Stack(*(Block(Attention(kind)) for _ in range(3)))
    lists = find_blocks(model, as_batch(IDS))
    assert [each.blocks for each in lists] == [("layers.0", "layers.1", "layers.2")]
    assert "not visible: attention in any block, computed by Attention" in attention_note(lists)
    assert len(saturation(model, [IDS]).layers) == 4


def test_a_partly_visible_model_lists_all_layers_and_names_the_hidden_ones():
    kinds = ("softmax", "after_sum", "softmax", "after_sum")
    model = Stack(*(Block(Attention(kind)) for kind in kinds))
    (blocks,) = find_blocks(model, as_batch(IDS))
    assert blocks.blocks == tuple(f"layers.{i}" for i in range(4))
    assert blocks.unseen == ("layers.1", "layers.3")
    assert "2 blocks (layers.1, layers.3)" in attention_note([blocks])
    assert attention_note(find_blocks(HandWritten(), as_batch(IDS))) is None


def test_a_model_without_any_attention_has_its_repeated_blocks():
    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.ff = feed_forward()

        def forward(self, x):
            return x + self.ff(x).cumsum(1)

    (blocks,) = find_blocks(Stack(Mixer(), Mixer()), as_batch(IDS))
    assert blocks.blocks == ("layers.0", "layers.1") == blocks.unseen
    assert "no attention was found in any block" in attention_note([blocks])


def test_experts_in_a_list_are_not_a_stack():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(feed_forward() for _ in range(3))

        def forward(self, x):
            return x + sum(part(x) for part in self.parts)

    (blocks,) = find_blocks(Stack(Experts(), Experts()), as_batch(IDS))
    assert blocks.blocks == ("layers.0", "layers.1")


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_is_named():
    from torch.nn.attention.flex_attention import flex_attention

    class Flex(Attention):
        def _softmax(self, q, k, v):
            return flex_attention(q, k, v).transpose(1, 2).flatten(2)

    model = Stack(*(Block(Flex()) for _ in range(2)))
    lists = find_blocks(model, as_batch(IDS))
    assert lists[0].blocks == ("layers.0", "layers.1")
    assert "computed by flex_attention" in attention_note(lists)


def test_blocks_by_pattern():
    model = hugging_face("t5")
    batch = as_batch(token_batch("t5"))
    (one,) = find_blocks(model, batch, pattern="encoder.block.*")
    assert one.path == "encoder.block" and one.blocks == ("encoder.block.0", "encoder.block.1")
    one, two = find_blocks(model, batch, pattern=r"(en|de)coder\.block\.\d+")
    assert one.blocks[0] == "encoder.block.0" and two.decoder
    (parts,) = find_blocks(model, batch, pattern="encoder.block.*.layer.*")
    assert len(parts.blocks) == 4 and parts.path == "encoder.block"
    with pytest.raises(UsageError, match=r"matches no module; .*encoder\.block\.\*"):
        find_blocks(model, batch, pattern="layers.*")
    with pytest.raises(UsageError, match="matches no module"):
        find_blocks(model, batch, pattern="layers.(")


def test_a_model_without_blocks_says_what_to_do():
    with pytest.raises(ModelError, match="blocks='encoder.layers"):
        find_blocks(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), as_batch(torch.randn(2, 4)))


def test_a_model_that_attends_in_its_own_forward_has_the_blocks_of_its_list():
    class Inline(ListBlocks):
        def _prenorm(self, layer, x):
            attn, ff = layer
            q, k, v = (getattr(attn.fn, name)(attn.norm(x)) for name in "qkv")
            return ff(x + (q @ k.mT).softmax(-1) @ v) + x

    model = Inline("prenorm")
    (blocks,) = find_blocks(model, as_batch(IDS))
    assert blocks.blocks == ("layers.0", "layers.1", "layers.2")
