"""Cells: values as typed, every combination, names and seeds that do not depend on the rest."""

import itertools

import pytest

from normscope.errors import UsageError
from normscope.lab.config import TrainConfig
from normscope.lab.sweep.cells import grid, make_cells, parse_values


def test_a_range_is_even_in_the_logarithm():
    assert parse_values("1e-5:1e-1:5") == [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]
    twenty = parse_values("1e-5:1e-1:20")
    assert len(twenty) == 20
    assert [b / a for a, b in itertools.pairwise(twenty)] == pytest.approx([10 ** (4 / 19)] * 19, rel=1e-5)
    assert parse_values("pre, post") == ["pre", "post"]


@pytest.mark.parametrize("text", ["1:2", "0:1:3", "1:2:0", "a:b:c", "1:2:3:4"])
def test_nonsense_values_are_refused(text):
    with pytest.raises(UsageError):
        parse_values(text)


def test_grid_is_the_product():
    cells = grid({"lr": [1, 2], "norm": ["pre", "post", "paper"]})
    assert len(cells) == 6
    assert cells[:2] == [{"lr": 1, "norm": "pre"}, {"lr": 1, "norm": "post"}]


def test_a_cell_keeps_name_and_seed_when_the_sweep_grows():
    few = make_cells(TrainConfig(), grid({"lr": [1e-3]}), "own")
    many = make_cells(TrainConfig(), grid({"lr": [1e-2, "0.001", 1e-4]}), "own")
    assert few[0] == many[1]
    assert len({cell.config.seed for cell in many}) == 3
    assert {cell.config.seed for cell in make_cells(TrainConfig(seed=4), grid({"lr": [1, 2]}))} == {4}
    assert make_cells(TrainConfig(), [{"seed": 9}], "own")[0].config.seed == 9


def test_the_same_cell_comes_once():
    assert len(make_cells(TrainConfig(), [{"lr": 0.001}, {"lr": "1e-3"}])) == 1


def test_names_are_safe_and_mistakes_are_named():
    (cell,) = make_cells(TrainConfig(), [{"text": "../some where/a:b.txt"}])
    assert "/" not in cell.id
    with pytest.raises(UsageError, match="did you mean 'weight_decay'"):
        make_cells(TrainConfig(), [{"weight_decy": 1}])
    with pytest.raises(UsageError, match="at least one cell"):
        make_cells(TrainConfig(), [])
