"""The predicted boundary against the recursion carried out step by step."""

import math

import pytest

from normscope.errors import UsageError
from normscope.theory.dynamics.growth_boundary import measured_change, predicted_change, predicted_growth

CELL = {
    "lr": 0.01,
    "weight_decay": 0.1,
    "changes": {"lr": 0.01, "weight_decay": 0.1},
    "norm_start": 2.0,
    "norm_end": 8.0,
    "update": 3.0,
    "radial": 0.2,
    "steps": 500,
}


def slowly(cell, share=1.0):
    """log₂ of the change of the norm, one step after the other."""
    sumsq, rate, decay = cell["norm_start"] ** 2, cell.get("mean_lr") or cell["lr"], cell["weight_decay"]
    for _ in range(cell["steps"]):
        lost = (2 * rate * decay - (rate * decay) ** 2) * share * sumsq
        along = 2 * (1 - rate * decay * share) * rate * cell.get("radial", 0.0) * math.sqrt(sumsq)
        sumsq += along - lost + (rate * cell["update"]) ** 2
    return math.log2(math.sqrt(sumsq) / cell["norm_start"])


def test_the_change_of_a_cell():
    assert measured_change(CELL, "norm") == 2 and measured_change(CELL, "body_norm") is None


@pytest.mark.parametrize(
    "changes", [{}, {"weight_decay": 0.0}, {"radial": -0.1}, {"mean_lr": 0.004}], ids=repr
)
def test_the_prediction_is_the_recursion(changes):
    cell = {**CELL, **changes}
    assert predicted_change(cell, "norm") == pytest.approx(slowly(cell), abs=0.01)
    assert predicted_change(cell, "body_norm") is None


def test_weight_decay_acts_on_its_share_only():
    cell = {**CELL, "decayed": 0.25}
    assert predicted_change(cell, "norm") == pytest.approx(slowly(cell, 0.25), abs=0.01)
    assert predicted_change(cell, "norm") > predicted_change(CELL, "norm")


def test_a_document_without_radial_part_has_orthogonal_updates():
    old = {name: value for name, value in CELL.items() if name != "radial"}
    assert predicted_change(old, "norm") == pytest.approx(slowly(old), abs=0.01)
    assert predicted_change({**old, "steps": 0}, "norm") is None


def test_updates_along_the_parameters_move_the_boundary():
    """Orthogonal updates of this size would let the norm grow; these shrink it."""
    cell = {**CELL, "weight_decay": 0.0, "update": 1.0, "radial": -0.1}
    assert predicted_change(cell, "norm") < 0 < predicted_change({**cell, "radial": 0.0}, "norm")


def test_the_growth_of_a_scope():
    body = {f"body_{name}": CELL[name] for name in ("norm_start", "update", "radial")}
    cell = {**CELL, **body, "body_radial": -5.0}
    assert predicted_growth(cell, "all") == predicted_change(CELL, "norm") > 0
    assert predicted_growth(cell) == predicted_change(cell, "body_norm") < 0
    assert predicted_growth(CELL) is None
    assert predicted_growth({**cell, "weight_decay": 100.0}) is None
    with pytest.raises(UsageError, match="unknown scope 'head': expected body or all"):
        predicted_growth(cell, "head")
