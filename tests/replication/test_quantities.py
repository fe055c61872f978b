"""Each quantity against a slow version of its own, and as the mathematics says it must behave."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from scipy import stats

from normscope.replication.claim_files import known_claims
from normscope.replication.judging.document_values import by_seed, field_value, matches, saturation_curve
from normscope.replication.judging.quantities import QUANTITIES, leak_positions
from normscope.replication.measured_numbers import measure_claim
from tests.replication.trial_documents import LENGTH, all_documents, documents_of


def quantity(name, documents, **options):
    return QUANTITIES[name].compute(documents, **options)


@pytest.fixture(scope="module")
def grid():
    return [d for d in documents_of("rate-and-decay") if d["changes"]["seed"] == 0]


def test_growth_is_a_ratio_and_its_share_counts_those_above_one(grid):
    ratios = [d["body_norm_end"] / d["body_norm_start"] for d in grid]
    assert quantity("growth", grid) == pytest.approx(stats.gmean(ratios))
    assert quantity("share-growing", grid) == np.mean([ratio > 1 for ratio in ratios])
    doubled = [
        {**d, "body_norm_start": 7 * d["body_norm_start"], "body_norm_end": 7 * d["body_norm_end"]}
        for d in grid
    ]
    assert quantity("growth", doubled) == pytest.approx(quantity("growth", grid))


def test_a_training_that_diverged_does_not_count_as_grown(grid):
    """It stays one of the settings: leaving it out would make the share of the others look larger."""
    changed = [{**grid[0], "status": "diverged", "body_norm_end": 1e9}, *grid[1:]]
    others = quantity("share-growing", grid[1:])
    assert quantity("share-growing", changed) == pytest.approx(others * 24 / 25)


def unfinished(document, status):
    """A training that ended at step 10 of 100, with what it had measured until then."""
    early = {kind: [row for row in document[kind] if row["step"] <= 10] for kind in ("saturation", "heads")}
    return {**document, **early, "status": status}


@pytest.mark.parametrize("status", ["failed", "diverged"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("growth", {}),
        ("saturation", {}),
        ("saturation", {"when": "peak"}),
        ("saturation-rise", {}),
        ("share-converged", {}),
        ("share-of-heads", {"types": ["mean"]}),
        ("share-at-leak", {}),
        ("largest-at-leak", {}),
        ("field", {"path": "loss"}),
        ("largest", {"path": "loss"}),
    ],
)
def test_what_an_unfinished_training_measured_last_is_not_its_end(name, options, status):
    documents = documents_of("language-models")[:3]
    assert math.isfinite(quantity(name, documents, **options))
    documents[1] = unfinished(documents[1], status)
    assert math.isnan(quantity(name, documents, **options))


def test_a_training_that_failed_might_have_grown_or_learned(grid):
    changed = [unfinished(grid[0], "failed"), *grid[1:]]
    able = {"able": "evaluation.valid_sequence_accuracy", "least": 0.95}
    assert math.isnan(quantity("share-growing", changed))
    assert math.isnan(quantity("share-capable", changed, **able))
    changed[0] = unfinished(grid[0], "diverged")
    assert quantity("share-capable", changed, **able) == 24 / 25


def test_saturation_that_is_missing_at_the_end_is_not_that_of_an_earlier_step():
    (document,) = documents_of("language-models")[:1]
    earlier = [row for row in document["saturation"] if row["step"] < 100]
    assert math.isnan(quantity("saturation", [{**document, "saturation": earlier}]))
    assert math.isfinite(quantity("saturation", [{**document, "saturation": earlier}], when="start"))


def test_signs_as_the_recursion_step_by_step_gives_them(grid):
    """The prediction against a plain loop over every step, with the formula of the update."""
    right = []
    for d in grid:
        norm, lr, decay = d["body_norm_start"], d["lr"], d["weight_decay"]
        for _ in range(d["steps"]):
            kept = (1 - lr * decay) * norm
            norm = math.sqrt(
                kept**2 + 2 * (1 - lr * decay) * lr * d["body_radial"] * norm + (lr * d["body_update"]) ** 2
            )
        right.append((norm > d["body_norm_start"]) == (d["body_norm_end"] > d["body_norm_start"]))
    assert quantity("signs-predicted", grid) == pytest.approx(np.mean(right))


def test_threshold_lies_where_the_change_crosses_zero():
    def cell(decay, change):
        base = documents_of("rate-and-decay", seeds=1)[0]
        return {
            **base,
            "lr": 1e-3,
            "weight_decay": decay,
            "body_norm_start": 1.0,
            "body_norm_end": 2.0**change,
        }

    found = quantity("decay-threshold", [cell(1e-4, 0.5), cell(1e-2, -0.5), cell(1e-1, -2.0)])
    assert found == pytest.approx(1e-3)
    assert quantity("decay-threshold", [cell(1e-4, 0.5), cell(1e-2, 0.1)]) == 1e-2
    assert quantity("decay-threshold", [cell(1e-4, -0.5), cell(1e-2, -0.9)]) == 1e-4
    for unclear in (
        [cell(1e-4, -0.5), cell(1e-3, 0.5), cell(1e-2, 0.9)],  # shrinks, then grows
        [cell(1e-4, 0.5), {**cell(1e-3, 0.5), "body_norm_end": None}, cell(1e-2, -0.5)],
        [cell(1e-4, 0.5), {**cell(1e-3, 0.5), "status": "diverged"}, cell(1e-2, -0.5)],
        [],
    ):
        assert math.isnan(quantity("decay-threshold", unclear))


def test_saturation_at_start_end_and_peak():
    documents = documents_of("language-models")[:5]
    last = [[row["cosine"] for row in d["saturation"] if row["layer"] == 2] for d in documents]
    assert quantity("saturation", documents) == pytest.approx(np.mean([values[-1] for values in last]))
    assert quantity("saturation", documents, when="start") == pytest.approx(np.mean([v[0] for v in last]))
    assert quantity("saturation", documents, when="peak") == pytest.approx(np.mean([max(v) for v in last]))
    until = np.mean([max(v[:3]) for v in last])
    assert quantity("saturation", documents, when="peak", until=50) == pytest.approx(until)
    rise = quantity("saturation", documents) - quantity("saturation", documents, when="start")
    assert quantity("saturation-rise", documents) == pytest.approx(rise)
    layers = [
        row["cosine"] for d in documents for row in d["saturation"] if row["layer"] > 0 and row["step"] == 100
    ]
    assert quantity("saturation", documents, layer="all") == pytest.approx(np.mean(layers))


def test_a_training_without_saturation_makes_it_unknown():
    documents = [*documents_of("language-models")[:3]]
    documents[1] = {**documents[1], "saturation": []}
    assert math.isnan(quantity("saturation", documents))
    assert math.isnan(quantity("share-converged", documents))


def test_layers_that_have_not_converged_are_counted():
    documents = copy.deepcopy(documents_of("language-models")[:2])
    for row in documents[0]["saturation"]:
        row["converged"] = row["layer"] == 0
    assert quantity("share-converged", documents) == pytest.approx((1 / 3 + 1) / 2)


def test_types_of_heads_add_up():
    documents = documents_of("language-models")[:4]
    kinds = ("argmax", "mean", "mixed", "undecided")
    assert math.fsum(quantity("share-of-heads", documents, types=[kind]) for kind in kinds) == pytest.approx(
        1
    )
    assert quantity("share-of-heads", documents, types=list(kinds)) == 1


def test_positions_of_a_head_that_ties_over_the_future():
    """Counted on the attention that the leaking mask gives when every visible score is negative."""
    for length in (2, 5, 64, 83):
        scores = np.tril(-np.random.default_rng(length).uniform(1, 2, (length, length)))
        counts = (scores == scores.max(axis=1, keepdims=True)).sum(axis=1)
        assert leak_positions(length) == pytest.approx(counts.mean())
    assert leak_positions(83) == pytest.approx(41.012047, abs=2e-6)
    assert leak_positions(700) == pytest.approx(349.501435, abs=1e-5)
    documents = documents_of("language-models")[:2]
    assert quantity("share-at-leak", documents) == pytest.approx(1 / 3)
    assert quantity("largest-at-leak", documents) == pytest.approx(31.515625 / leak_positions(LENGTH))


def test_rank_correlation_ignores_how_the_numbers_are_spaced(grid):
    found = quantity("rank-correlation", grid, x="body_norm_end", y="saturation")
    ends = [saturation_curve(d, "last")[-1][1] for d in grid]
    assert found == pytest.approx(stats.spearmanr([d["body_norm_end"] for d in grid], ends).statistic)
    stretched = [{**d, "body_norm_end": d["body_norm_end"] ** 5} for d in grid]
    assert quantity("rank-correlation", stretched, x="body_norm_end", y="saturation") == pytest.approx(found)
    assert math.isnan(quantity("rank-correlation", grid[:3], x="body_norm_end", y="saturation"))


def test_only_networks_that_can_do_the_task_are_asked():
    documents = copy.deepcopy(documents_of("counting")[:4])
    path = "evaluation.saturated_exact_valid_sequence_accuracy"
    for d, soft, hard in zip(documents, (1.0, 0.5, 0.96, 0.0), (0.2, 0.9, 0.4, 0.9), strict=True):
        d["evaluation"] = {"valid_sequence_accuracy": soft, path.split(".")[1]: hard}
    able = {"able": "evaluation.valid_sequence_accuracy", "least": 0.95}
    assert quantity("among-capable", documents, path=path, **able) == pytest.approx(0.3)
    assert quantity("among-capable", documents, path=path, pick="max", **able) == 0.4
    assert quantity("share-capable", documents, **able) == 0.5
    assert math.isnan(quantity("among-capable", documents[1:2], path=path, **able))


def test_where_takes_lists_and_none():
    document = {"changes": {"norm": "pre", "constraint": None}}
    assert matches(document, {"norm": ["pre", "post"], "constraint": "none"})
    assert not matches(document, {"norm": ["post"]})
    assert not matches(document, {"mask": "causal"})


def test_fields_by_path_and_seeds():
    documents = documents_of("counting")
    assert field_value(documents[0], "evaluation.nothing.more") is None
    assert {seed: len(group) for seed, group in by_seed(documents).items()} == {0: 8, 1: 8, 2: 8}


def test_a_difference_is_taken_seed_by_seed(tmp_path):
    """What all trainings of a seed share cancels: the interval of a difference can be the narrower one."""
    documents = copy.deepcopy(documents_of("held-norm"))
    for d in documents:
        shared, own = 0.2 * d["changes"]["seed"], 0.0 if d["changes"]["constraint"] == "none" else 0.1
        for row in d["saturation"]:
            row["cosine"] = 0.1 + shared + own
    found = measure_claim(known_claims()["growth-and-saturation"], {"held-norm": documents})["corrected"]
    assert found["early"].value == pytest.approx(-0.1)
    assert found["early"].high - found["early"].low < 1e-9
    assert found["free_early"].high - found["free_early"].low > 0.5


def test_every_number_of_every_claim_is_measured(tmp_path):
    documents = all_documents(tmp_path)
    for claim in known_claims().values():
        measured = measure_claim(claim, documents)
        for number in claim.numbers:
            for column in set(number.columns) & set(claim.columns):
                assert measured[column][number.name].value is not None, (claim.id, column, number.name)
