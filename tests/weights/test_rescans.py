"""A run file after checkpoints were added, replaced or deleted: its numbers are those of the files."""

import numpy as np
import pytest
import torch

from normscope.remarks import LeftOut, read_left_out, write_remarks
from normscope.run import Run
from normscope.theory.measures.measures import group
from normscope.weights.scan.scan import scan


def put(folder, step, seed):
    torch.manual_seed(seed)
    torch.save({f"layers.{i}.weight": torch.randn(6, 5) for i in range(2)}, folder / f"step_{step}.pt")


def vector(seed):
    torch.manual_seed(seed)
    return torch.cat([torch.randn(6, 5).flatten().double() for _ in range(2)]).numpy()


def rows(path):
    with Run(path) as run:
        sql = (
            "SELECT step, prev_step, tensor.name, sumsq, dot, dot_init FROM weight JOIN tensor ON id = tensor"
        )
        return sorted(run.query(sql))


def check(path, seeds, first):
    """Every number in the run file is that of these seeds, or missing; no norm is missing."""
    with Run(path) as run:
        found = group(run, scope="all")
    assert list(found.steps) == sorted(seeds)
    for i, step in enumerate(found.steps):
        own = vector(seeds[step])
        distance = np.linalg.norm(own - vector(seeds[first]))
        np.testing.assert_allclose(found.measure("norm")[i, 0], np.linalg.norm(own), rtol=1e-6)
        for name, truth in (("distance", distance), ("update", _update(found.previous[i], own, seeds))):
            value = found.measure(name)[i, 0]
            assert np.isnan(value) or value == pytest.approx(truth, rel=1e-6, abs=1e-4), (name, step)
    return found


def _update(previous, own, seeds):
    return np.linalg.norm(own - vector(seeds[previous])) if previous in seeds else np.nan


@pytest.fixture
def folder(tmp_path):
    for step in range(5):
        put(tmp_path, step, step)
    return tmp_path


def test_what_came_between_leaves_the_rows_of_a_fresh_scan(folder):
    late = {name: (folder / name).read_bytes() for name in ("step_0.pt", "step_2.pt")}
    for name in late:
        (folder / name).write_bytes(b"")
    scan(folder, folder / "run.db").close()
    for name, content in late.items():
        (folder / name).write_bytes(content)
    scan(folder, folder / "run.db").close()
    scan(folder, folder / "fresh.db").close()
    assert rows(folder / "run.db") == rows(folder / "fresh.db")


def test_a_checkpoint_that_was_replaced_after_its_neighbour_was_deleted(folder):
    scan(folder, folder / "run.db").close()
    (folder / "step_1.pt").unlink()
    scan(folder, folder / "run.db").close()
    put(folder, 2, seed=50)
    scan(folder, folder / "run.db").close()
    check(folder / "run.db", {0: 0, 1: 1, 2: 50, 3: 3, 4: 4}, first=0)


def test_distances_when_the_first_checkpoints_are_deleted(folder):
    seeds = {step: step for step in range(5)}
    scan(folder, folder / "run.db").close()
    for new in (5, 6, 7):
        (folder / f"step_{new - 5}.pt").unlink()
        put(folder, new, new)
        seeds[new] = new
        scan(folder, folder / "run.db").close()
        found = check(folder / "run.db", seeds, first=new - 4)
        assert np.isfinite(found.measure("distance")[-5:]).all()
        assert np.isfinite(found.measure("update")[1:]).all()


def test_what_is_left_out_twice_under_one_name_keeps_both_reasons(tmp_path):
    with Run.create(tmp_path / "run.db") as run:
        with run.transaction():
            each = (
                LeftOut("step_10", "b"),
                LeftOut("last", "one"),
                LeftOut("last", "two"),
                LeftOut("step_9", "a"),
            )
            write_remarks(run, each, [])
        found = [(each.label, each.reason) for each in read_left_out(run)]
    assert found == [("last", "one; two"), ("step_9", "a"), ("step_10", "b")]
