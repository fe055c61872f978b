"""What rows of scores prove: against exact arithmetic on rows whose limit is known."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from normscope.network.attention.attention_maps import (
    HeadSums,
    hard_measures,
    overtaken,
    soft_measures,
    visible_positions,
)
from normscope.network.attention.row_evidence import largest_in_rows, row_evidence
from normscope.network.settling.head_types import HeadEvidence, HeadTypes, Trust, _evidence
from normscope.network.watching.attention_call import AttentionCall, without_hidden

EPSILON = {torch.float32: 2.0**-23, torch.float64: 2.0**-52}


def rows_of(scores, visible=None, dtype=torch.float64):
    scores = torch.tensor(scores, dtype=dtype)[None, None]
    seen = torch.ones_like(scores, dtype=torch.bool) if visible is None else torch.tensor(visible)[None, None]
    return row_evidence(scores, seen, EPSILON[dtype])[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_clear_gap_is_one_position_and_equal_scores_are_a_tie(dtype):
    rows = rows_of([[100.0, 0.0, 0.0], [100.0, 100.0, 0.0], [7.0, 7.0, 7.0]], dtype=dtype)
    assert rows.settled.all() and rows.attended.flatten().tolist() == [1, 2, 3]


def test_a_real_but_small_gap_is_soft_until_it_is_larger_than_softmax_needs():
    needed = math.log(3 / 1e-6)
    for gap, settled in ((0.1, False), (needed - 0.1, False), (needed + 0.1, True), (1000.0, True)):
        rows = rows_of([[gap, 0.0, -50.0]])
        assert bool(rows.settled) is settled and bool(rows.soft) is not settled
        others = 1 - torch.tensor([gap, 0.0, -50.0]).double().softmax(-1).max()
        assert not settled or others < 1e-6


def test_a_gap_below_rounding_is_no_evidence_against_a_tie():
    """The same difference of 4, at 1e9: two scores in float64, one in float32."""
    scores = [[1e9 + 4.0, 1e9, 0.0]]
    assert rows_of(scores, dtype=torch.float32).attended.item() == 2
    wide = rows_of(scores, dtype=torch.float64)
    assert wide.soft.item() and wide.gap.item() == 4.0


def test_a_difference_is_real_when_it_exceeds_rounding_clearly():
    """Of a row's largest score, 2¹⁶ in float32, rounding is 0.5: differences of up to 2 prove nothing."""
    top = 2.0**16
    for near, gap in ((2.0, 5.0), (2.015625, 2.015625), (0.5, 5.0)):
        rows = rows_of([[top, top - near, top - 5.0, 0.0]], dtype=torch.float32)
        assert rows.soft.item() and rows.gap.item() == gap


def test_overflow_is_neither_one_position_nor_a_tie():
    rows = rows_of([[math.inf, 1.0, 2.0], [math.nan, 1.0, 2.0]])
    assert rows.lost.all() and not rows.settled.any() and rows.most.flatten().tolist() == [3, 3]


def test_hidden_positions_are_not_rows_of_their_own():
    rows = rows_of([[5.0, 80.0, -math.inf]], visible=[[True, False, False]])
    assert rows.settled.item() and rows.attended.item() == 1 and rows.seen.item() == 1


def test_differences_that_stay_are_a_soft_limit_and_those_that_grow_are_not():
    before, after = rows_of([[3.0, 0.0, -90.0]] * 2), rows_of([[3.1, 0.0, -9000.0], [6.0, 0.0, -9000.0]])
    assert after.still(before).flatten().tolist() == [True, False]
    assert after.growing(before).flatten().tolist() == [False, True]


def test_types_are_decided_only_if_every_value_in_the_bounds_has_the_same_one():
    """Brute force over all completions of the rows that are not settled."""
    torch.manual_seed(0)
    types, generator = HeadTypes(), torch.Generator().manual_seed(1)
    decided = 0
    for _ in range(300):
        gaps = (
            torch.randint(0, 2, (6, 4), generator=generator)
            * torch.tensor([0.0, 4.0, 60.0])[torch.randint(0, 3, (6, 1), generator=generator)]
        )
        scores = -gaps.double()
        rows, _ = row_evidence(scores[None, None], torch.ones(1, 1, 6, 4, dtype=torch.bool), 2.0**-52)
        none = torch.zeros_like(rows.settled)
        parts = {k: float(v.double().mean()) for k, v in hard_measures(rows, (none, none, none)).items()}
        kind, _ = HeadEvidence(parts, 0.0).type(types, Trust(ties=True))
        ranges = [
            [int(rows.attended[0, 0, i])] if rows.settled[0, 0, i] else range(1, int(rows.most[0, 0, i]) + 1)
            for i in range(6)
        ]
        possible = {
            types.name(sum(n > 1 for n in counts) / 6, sum(counts) / 24)[0]
            for counts in itertools.product(*ranges)
        }
        assert kind == "undecided" or possible == {kind}
        decided += kind != "undecided"
    assert 50 < decided < 300


def test_the_weights_are_those_of_the_limit_and_ties_are_even():
    """In float32, two scores that are equal on paper and differ by a rounding: softmax would choose one."""
    scores = torch.tensor([[3e9, 3e9 * (1 - 2.0**-23), 0.0], [2.0, 1.0, -9.0], [9.0, math.nan, 1.0]])[
        None, None
    ]
    _, weights = row_evidence(scores, torch.ones_like(scores, dtype=torch.bool), 2.0**-23)
    assert scores.softmax(-1)[0, 0, 0, 0] == 1 and weights[0, 0, 0].tolist() == [0.5, 0.5, 0.0]
    assert torch.allclose(weights[0, 0, 1], scores[0, 0, 1].softmax(-1)) and weights[0, 0, 2].isnan().any()


def wild_scores(seed, keys, shared):
    """Scores with infinities and NaN here and there, and what is visible, for all heads together or not."""
    generator = torch.Generator().manual_seed(seed)
    scores = 50 * torch.randn(3, 4, 5, keys, generator=generator)
    for value in (math.inf, -math.inf, math.nan):
        scores[torch.rand(scores.shape, generator=generator) < 0.02] = value
    return scores, torch.rand(3, 1 if shared else 4, 5, keys, generator=generator) < 0.7


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("keys", [1, 5, 31, 32, 40])
@pytest.mark.parametrize("seed", range(4))
def test_the_fast_ways_give_what_the_plain_ones_do(seed, keys, shared):
    scores, visible = wild_scores(seed, keys, shared)
    for value in (-math.inf, math.inf):
        expected = scores.masked_fill(~visible, value)
        assert torch.equal(without_hidden(scores, visible, value).nan_to_num(7.5), expected.nan_to_num(7.5))
    largest = scores.amax(-1, keepdim=True)
    assert torch.equal(largest_in_rows(scores).nan_to_num(7.5), largest.nan_to_num(7.5))
    masked = scores.masked_fill(~visible, -1e9)
    assert torch.equal(visible_positions(masked).expand_as(masked), ~(masked <= -5000))
    counted = (torch.arange(15).reshape(3, 1, 5) % 3 > 0).double()
    for penalty in (0.0, 100.0, 1e4):
        raised = torch.where(visible, scores, scores - penalty)
        highest = raised.masked_fill(visible, -torch.inf).amax(-1)
        found = highest > raised.masked_fill(~visible, -torch.inf).amax(-1) - 6.9
        assert overtaken(raised, visible, counted) is bool((found & (counted > 0)).any())


@pytest.mark.parametrize("mask", [-torch.inf, torch.finfo(torch.float16).min, -1e9, -1e4])
def test_masks_that_models_add_hide_positions_and_large_negative_scores_do_not(mask):
    scores = torch.tensor([300.0, 0.0, -300.0, -4000.0]).expand(2, 3, 5, 4)
    added = torch.tensor([[0.0, 0.0, 0.0, 0.0], [mask, 0.0, mask, 0.0]])[:, None, None]
    shown = visible_positions(scores + added)
    assert shown.shape == (2, 1, 5, 4)  # one head, since all see the same
    assert shown[:, 0, 0].tolist() == [[True] * 4, [False, True, False, True]]
    own = visible_positions(scores + added.movedim(0, 1).expand(1, 2, 5, 4)[:, [0, 1, 1]])
    assert own[0, :, 0].tolist() == [[True] * 4, *[[False, True, False, True]] * 2]
    assert bool(visible_positions(torch.full((1, 1, 1, 2), torch.nan)).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_effective_number_of_positions_is_the_exponential_of_the_entropy(dtype):
    torch.manual_seed(0)
    size = torch.tensor([1e-3, 1.0, 30.0, 4000.0])[:, None, None, None]
    scores = (torch.randn(4, 3, 6, 6) * size).to(dtype)
    scores[0, :, 2, 3:], scores[1, 0, 0] = -torch.inf, -torch.inf
    call = AttentionCall("attn", 1, 4, 3, 6, 6, lambda start, stop: scores[:, :, start:stop])
    weights = scores.softmax(-1)
    found = soft_measures(scores, weights, scores > -5000, 0, call)["effective"]
    expected = torch.special.entr(scores.double().softmax(-1)).sum(-1).exp()
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=0, equal_nan=True)


def test_sums_leave_out_queries_that_do_not_count_even_if_they_are_nan():
    values = torch.arange(24.0).reshape(2, 3, 4)
    counted = torch.tensor([[[1.0, 1, 0, 1]], [[1.0, 0, 0, 0]]]).double()
    spoilt = torch.where(counted > 0, values, torch.nan)
    for given in (values, spoilt):
        sums = HeadSums()
        for _ in range(2):
            sums.add({"some": given, "whether": given > 3}, counted)
        assert sums.queries == 8
        assert sums.sums["some"].tolist() == [2 * (4 + 12.0), 2 * (16 + 16.0), 2 * (28 + 20.0)]
        assert sums.mean("whether").tolist() == [2 / 8, 8 / 8, 8 / 8]


def test_the_deviation_of_a_head_is_that_of_its_rows():
    """Rows that attend to 1, 1 and 7 positions, and one that is lost."""
    names = ("split", "share", "known split", "known share")
    sums = {"positions": 9.0, "squares": 51.0, "lost": 1.0, **dict.fromkeys(names, 0.0)}
    found = _evidence(sums, 4.0)
    assert found.parts["positions"] == 3.0 and found.deviation == pytest.approx(8**0.5)
