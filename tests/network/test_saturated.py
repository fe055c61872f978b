"""The saturated network itself, with attention scaled or as the exact limit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from normscope.errors import UsageError
from normscope.network.measuring.saturated import saturated, saturated_weights
from normscope.network.watching.hidden_states import first_states, unit_rows
from tests.network.models import FAMILIES, HandWritten, hugging_face, token_batch

pytest.importorskip("transformers")


def run(model, batch):
    with torch.no_grad():
        return first_states(model(**batch) if isinstance(batch, dict) else model(batch))


def test_weights_are_the_limit_of_softmax():
    scores = torch.tensor(
        [[1.0, 3.0, 3.0, -torch.inf], [0.0, 0.0, 0.0, 0.0], [-5.0, -4.0, -6.0, -7.0]]
    ).double()
    torch.testing.assert_close(saturated_weights(scores), (scores * 1e6).softmax(-1))
    hidden = torch.full((2, 3), -torch.inf)
    assert torch.equal(saturated_weights(hidden), torch.zeros(2, 3))


def test_ties_survive_rounding():
    score = torch.tensor([0.1, 0.1 * (1 + 2e-7), 0.0999])
    torch.testing.assert_close(saturated_weights(score), torch.tensor([0.5, 0.5, 0.0]))
    torch.testing.assert_close(saturated_weights(score, ties=0), torch.tensor([0.0, 1.0, 0.0]))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_exact_and_scaled_attention_meet_in_the_limit(family, attention):
    model = hugging_face(family, attention).double()
    batch = token_batch(family)
    real = batch["attention_mask"].bool() if family != "t5" else torch.ones(3, 5, dtype=torch.bool)
    with saturated(model):
        by_scaling = run(model, batch)
    with saturated(model, attention="exact"):
        exact = run(model, batch)
    cosine = (unit_rows(by_scaling[real]) * unit_rows(exact[real])).sum(-1)
    assert cosine.min() > 0.999
    assert not torch.equal(run(model, batch), exact)


def test_exact_attention_is_one_position_per_query():
    """With scale 1 only attention changes: each output is the value of one position."""
    attention = nn.MultiheadAttention(8, 2, batch_first=True, bias=False).eval()
    attention.out_proj.weight.data = torch.eye(8)
    x = torch.randn(1, 5, 8)
    values = x @ attention.in_proj_weight[16:].T
    with saturated(attention, attention="exact", scale=1), torch.no_grad():
        output, _ = attention(x, x, x, need_weights=False)
        again, weights = attention(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(output, again)
    assert set(weights.unique().tolist()) == {0.0, 1.0}
    for part in (slice(0, 4), slice(4, 8)):
        distance = torch.cdist(output[0, :, part], values[0, :, part])
        assert distance.min(1).values.max() < 1e-5


def test_ties_that_rounding_breaks_are_mended():
    """Equal tokens without positions tie on paper; the exact limit averages over all of them."""
    torch.manual_seed(0)
    model = HandWritten("none", positions=False, layers=1)
    ids = torch.tensor([[4, 4, 9, 4, 4, 4, 9, 4]])
    with saturated(model, attention="exact"):
        states = run(model, ids)[0]
    torch.testing.assert_close(unit_rows(states)[0], unit_rows(states)[7])


def test_parameters_come_back_and_unknown_kinds_are_refused():
    model = HandWritten()
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(RuntimeError), saturated(model, attention="exact"):
        raise RuntimeError
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    with pytest.raises(UsageError, match="'scaled' or 'exact'"), saturated(model, attention="hard"):
        pass
