"""Measures that other packages add: what they are called with, what is written, and what is refused."""

import math
from functools import partial

import pytest
import torch
from safetensors.torch import save_file

from normscope.errors import PluginError
from normscope.run import MeasureRow, Run
from normscope.weights.audit.audit import audit
from normscope.weights.scan.scan import scan
from tests.conftest import random_walk, save_series


@pytest.fixture
def install(install_plugins):
    return partial(install_plugins, "measures")


def largest(matrix):
    return torch.linalg.matrix_norm(matrix, 2)


def moved(matrix, previous):
    return (matrix - previous).abs().sum().item()


def values(path, name):
    """The recorded values of a measure by (step, tensor name)."""
    with Run(path) as run:
        names = {tensor.id: tensor.name for tensor in run.tensors()}
        rows = [row for row in run.table(MeasureRow) if row["name"] == name]
        return {(row["step"], names[row["tensor"]]): row["value"] for row in rows}


def expected(states, measure):
    """The same values, computed from the tensors that were saved."""
    found = {}
    steps = sorted(states)
    for before, step in zip([None, *steps[:-1]], steps, strict=True):
        for name, tensor in states[step].items():
            matrix = tensor.double().flatten(1) if tensor.dim() > 1 else None
            if matrix is None:
                continue
            if measure == "largest":
                found[step, name] = float(torch.linalg.svdvals(matrix)[0])
            elif before is not None:
                found[step, name] = float((matrix - states[before][name].double().flatten(1)).abs().sum())
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_of_every_matrix_at_every_checkpoint(tmp_path, install, dtype):
    states = random_walk(
        [0, 10, 100], dtype=dtype, shapes={"wte.weight": (20, 8), "conv.weight": (6, 3, 2), "bias": (8,)}
    )
    install(largest=largest, moved=moved)
    scan(save_series(tmp_path / "series", states), tmp_path / "run.db").close()
    for name in ("largest", "moved"):
        found, wanted = values(tmp_path / "run.db", name), expected(states, name)
        assert found.keys() == wanted.keys()
        assert found == {key: pytest.approx(value, rel=1e-5) for key, value in wanted.items()}


def test_a_measure_gets_a_float32_matrix(tmp_path, install):
    seen = []
    install(shape=lambda matrix: seen.append((matrix.dtype, tuple(matrix.shape))) or 0.0)
    states = random_walk([1], dtype=torch.float64, shapes={"a": (4, 3, 2), "b": (5, 2), "c": (7,)})
    states[1]["empty"] = torch.empty(0, 4)
    scan(save_series(tmp_path / "series", states), tmp_path / "run.db").close()
    assert {dtype for dtype, _ in seen} == {torch.float32}
    assert sorted(shape for _, shape in seen) == [(4, 6), (5, 2)]


def test_only_what_is_missing_is_computed(tmp_path, install):
    calls = []

    def counted(matrix, previous):
        calls.append(matrix)
        return moved(matrix, previous)

    states = random_walk([0, 10, 100, 1000], shapes={"a": (4, 3), "b": (5, 2)})
    folder = save_series(tmp_path / "series", {step: states[step] for step in (0, 10, 100)})
    install(counted=counted)
    scan(folder, tmp_path / "run.db").close()
    assert len(calls) == 4  # two matrices, two pairs
    scan(folder, tmp_path / "run.db").close()
    assert len(calls) == 4
    save_series(folder, {1000: states[1000]})
    scan(folder, tmp_path / "run.db").close()
    assert len(calls) == 6
    install(counted=counted, largest=largest)  # a new package: the old values stay
    scan(folder, tmp_path / "run.db").close()
    assert len(calls) == 6
    assert values(tmp_path / "run.db", "largest").keys() == expected(states, "largest").keys()
    assert values(tmp_path / "run.db", "counted") == {
        key: pytest.approx(value, rel=1e-5) for key, value in expected(states, "moved").items()
    }


def test_changed_and_inserted_checkpoints_are_measured_again(tmp_path, install):
    states = random_walk([0, 10, 50, 100], shapes={"a": (4, 3)})
    folder = save_series(tmp_path / "series", {step: states[step] for step in (0, 10, 100)})
    install(largest=largest, moved=moved)
    scan(folder, tmp_path / "run.db").close()
    states[10] = random_walk([10], seed=9, shapes={"a": (4, 3)})[10]
    save_series(folder, {step: states[step] for step in (10, 50)})
    scan(folder, tmp_path / "run.db").close()
    for name in ("largest", "moved"):
        wanted = {key: pytest.approx(value, rel=1e-5) for key, value in expected(states, name).items()}
        assert values(tmp_path / "run.db", name) == wanted


def test_a_pair_that_skips_a_known_checkpoint_is_not_measured(tmp_path, install):
    """The run file knows 0, 10 and 100: a scan of 0 and 100 must measure 100 against 10."""
    states = random_walk([0, 10, 100], shapes={"a": (4, 3)})
    folder = save_series(tmp_path / "series", states)
    scan(folder, tmp_path / "run.db").close()
    install(moved=moved)
    scan([folder / "step_0.safetensors", folder / "step_100.safetensors"], tmp_path / "run.db").close()
    scan(folder, tmp_path / "whole.db").close()
    assert values(tmp_path / "run.db", "moved") == values(tmp_path / "whole.db", "moved") != {}
    scan(folder, tmp_path / "run.db").close()
    assert values(tmp_path / "run.db", "moved").keys() == {(10, "a"), (100, "a")}


def test_tied_tensors_are_measured_once(tmp_path, install):
    shared = torch.ones(3, 3)
    (tmp_path / "series").mkdir()
    torch.save({"wte.weight": shared, "lm_head.weight": shared}, tmp_path / "series" / "step_1.pt")
    install(largest=largest)
    scan(tmp_path / "series", tmp_path / "run.db").close()
    assert values(tmp_path / "run.db", "largest") == {(1, "wte.weight"): pytest.approx(3.0)}


def test_stages_are_kept_apart(tmp_path, install):
    states = random_walk([1000, 2000], shapes={"a": (4, 3)})
    (tmp_path / "series").mkdir()
    for stage in ("stage1", "stage2"):
        for step, state in states.items():
            save_file(state, tmp_path / "series" / f"{stage}-step{step}.safetensors")
    install(moved=moved)
    with scan(tmp_path / "series", tmp_path / "run.db") as run:
        assert run.measured("moved") == {("stage1", 2000, 1), ("stage2", 2000, 1)}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_stored_as_null(tmp_path, install, value):
    install(odd=lambda matrix: value)
    states = random_walk([1], shapes={"a": (2, 2)})
    scan(save_series(tmp_path / "series", states), tmp_path / "run.db").close()
    assert values(tmp_path / "run.db", "odd") == {(1, "a"): None}


def test_a_measure_that_raises_stops_the_scan_and_loses_nothing(tmp_path, install):
    def fails(matrix):
        if matrix.shape == (5, 2):
            raise ZeroDivisionError("no determinant")
        return 1.0

    folder = save_series(tmp_path / "series", random_walk([1, 2], shapes={"a": (4, 3), "b": (5, 2)}))
    install(fails=fails)
    with pytest.raises(
        PluginError, match=r"'fails' of the package norm-extras failed for the tensor b at step 1"
    ):
        scan(folder, tmp_path / "run.db")
    assert values(tmp_path / "run.db", "fails").keys() == {(1, "a"), (2, "a")}
    with Run(tmp_path / "run.db") as run:
        assert run.meta["complete"] is False
        assert run.query("SELECT count(*) FROM weight") == [(4,)]
    install()
    with scan(folder, tmp_path / "run.db") as run:
        assert run.meta["complete"] is True


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: 0.0, "0 required arguments"),
        (lambda *matrices: 0.0, "0 required arguments"),
        (lambda a, b, c: 0.0, "3 required arguments"),
        (lambda a, *, scale: 0.0, "requires the keyword argument 'scale'"),
        (3.0, "must be a function"),
        (torch.Tensor.sum, "no readable signature"),
    ],
)
def test_a_measure_of_another_kind_is_refused_before_anything_is_read(tmp_path, install, function, message):
    install(odd=function)
    with pytest.raises(PluginError, match=message):
        scan(save_series(tmp_path / "series", random_walk([1])), tmp_path / "run.db")
    assert not (tmp_path / "run.db").exists()


def test_optional_arguments_do_not_count(tmp_path, install):
    install(scaled=lambda matrix, scale=2.0, *, bias=1.0: matrix.sum() * scale + bias)
    states = {1: {"a": torch.ones(2, 3)}}
    scan(save_series(tmp_path / "series", states), tmp_path / "run.db").close()
    assert values(tmp_path / "run.db", "scaled") == {(1, "a"): 13.0}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda matrix: "much", "must return a number; it returned a str for the tensor"),
        (lambda matrix: matrix, "must return a number; it returned a Tensor"),
        (lambda matrix: None, "must return a number; it returned a NoneType"),
        (lambda matrix: matrix.mul_(2).sum(), "changed its matrix"),
    ],
)
def test_a_wrong_result_is_refused(tmp_path, install, function, message):
    install(odd=function)
    with pytest.raises(PluginError, match=message):
        scan(save_series(tmp_path / "series", random_walk([1])), tmp_path / "run.db")


def test_without_plugins_nothing_is_read_twice(tmp_path, install, states, series_folder, reads):
    install()
    scan(series_folder, tmp_path / "run.db").close()
    sizes = {name: value.numel() * value.element_size() for name, value in states[0].items()}
    assert all(count == sizes[name] for (_, name), count in reads.items())


def test_an_audit_does_not_measure(tmp_path, install, series_folder):
    install(fails=lambda matrix: pytest.fail("an audit called a measure"))
    audit(series_folder, run=tmp_path / "run.db")
    assert values(tmp_path / "run.db", "fails") == {}


@pytest.mark.parametrize("name", ["norm", "budget"])
def test_the_name_of_a_built_in_measure_is_refused(tmp_path, install, series_folder, name):
    install(**{name: largest})
    with pytest.raises(
        PluginError, match=f"'{name}' of the package norm-extras has the name of a built-in measure"
    ):
        scan(series_folder, tmp_path / "run.db")
