"""Sums by group, read as columns, against a slow version that looks at every row by itself."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from normscope.run import NO_PREVIOUS, CheckpointRow, Run, TensorRow, WeightRow
from normscope.run_files import sum_columns
from normscope.theory.measures.group_sums import NAMES
from normscope.theory.measures.measures import GROUPINGS, group, tensors_in_scope
from normscope.views.export_file import export
from tests.theory.make_run import make_run

ROLES = ("q", "mlp in", "norm", "embedding")
STAGES = ("", "second")


def random_run(path, seed):
    """Tensors that miss steps, tied ones, NULL sums, several θ′ for one step; rows of scans and monitors."""
    rng = np.random.default_rng(seed)
    with Run.create(path) as run, run.transaction():
        for i in range(9):
            shape, tied = ((4, 4) if i % 4 != 2 else (4,)), (0 if i == 8 else None)
            run.add_tensors(
                [TensorRow(i, f"h.{i // 3}.t{i}", "model", i // 3, ROLES[i % 4], shape, "F32", 16, tied)]
            )
        for stage in STAGES if seed % 2 else STAGES[:1]:
            saved = sorted(
                rng.choice(np.arange(0 if seed % 3 else 5, 60, 5), int(rng.integers(0, 7)), replace=False)
            )
            run.write(CheckpointRow(int(step), f"s{step}", "made", stage) for step in saved)
            for tensor in range(9):
                run.write(random_rows(rng, saved, tensor, stage))
    return path


def random_rows(rng, saved, tensor, stage):
    def number(missing=0.1):
        return None if rng.random() < missing else float(rng.normal() ** 2)

    before = NO_PREVIOUS
    for step in (int(step) for step in saved):
        if rng.random() < 0.9:
            dot, delta = (None, None) if before < 0 else (number(), number())
            yield WeightRow(step, before, tensor, number(0.05), dot, delta, number(0.2), 1.0, stage=stage)
        before = step
    for step in range(0, 12):
        if rng.random() < 0.6:
            bad = int(rng.integers(0, 3)) if rng.random() < 0.2 else 0
            row = WeightRow(
                step, step - 1, tensor, number(0.05), number(), number(), None, None, bad, stage=stage
            )
            yield replace(row, grad_sumsq=0.5, lr=1e-3)


def slow(run, by, scope, stage, pairs):
    """Steps, those they are compared with, and {(name, step, group): sum}; NaN where a tensor has none."""
    wanted = "stage, step, prev_step, tensor, sumsq, dot, sumsq_delta, dot_init, absmax, nonfinite"
    rows = [
        row[1:]
        for row in run.query(f"SELECT {wanted} FROM weight ORDER BY tensor, step, prev_step")
        if row[0] == stage
    ]
    there = {row[2] for row in rows}
    tensors = tensors_in_scope([t for t in run.tensors() if t.tied_to is None and t.id in there], scope)
    ids = {tensor.id for tensor in tensors}
    rows = [row for row in rows if row[2] in ids]
    saved = [each.step for each in run.checkpoints() if each.stage == stage]
    steps = sorted({row[0] for row in rows})

    def previous(step):
        if pairs == "updates" or (pairs is None and len(saved) < 2):
            return step - 1
        return saved[saved.index(step) - 1] if step in saved and saved.index(step) else NO_PREVIOUS

    last = {(row[2], row[0]): row for row in rows}
    paired = {(row[2], row[0]): row for row in rows if row[1] == previous(row[0]) and row[1] >= 0}
    is_scan = {id(row): not (row[7] is None and row[6] is None) for row in rows}
    init = {
        s: {(r[2], r[0]): r[6] for r in rows if r[6] is not None and is_scan[id(r)] == s}
        for s in (True, False)
    }
    same = bool(steps) and steps[0] == 0 and any(step == 0 for _, step in init[True])

    def value(name, tensor, step):
        key = (tensor, step)
        number = {"sumsq": (last, 3), "nonfinite": (last, 8), "dot": (paired, 4), "sumsq_delta": (paired, 5)}
        if name in number:
            table, column = number[name]
            found = table[key][column] if key in table else None
            return math.nan if found is None else found
        if name == "sumsq_previous":
            found = value("sumsq", tensor, previous(step))
            parts = [value(each, tensor, step) for each in ("sumsq", "dot", "sumsq_delta")]
            return parts[0] - 2 * parts[1] - parts[2] if math.isnan(found) else found
        if not init[True]:
            return (
                init[False].get(key, math.nan)
                if name == "dot_init"
                else (value("sumsq", tensor, 0) if steps[0] == 0 else math.nan)
            )
        if name == "dot_init":
            return init[True].get(key, init[False].get(key, math.nan) if same else math.nan)
        first = min((at for of, at in init[True] if of == tensor), default=steps[0])
        return value("sumsq", tensor, first)

    groups = {}
    for tensor in tensors:
        groups.setdefault(GROUPINGS[by](tensor), []).append(tensor.id)
    found = {
        (name, step, of): sum(value(name, tensor, step) for tensor in members)
        for name in NAMES
        for step in steps
        for of, members in groups.items()
    }
    return steps, [previous(step) for step in steps], found


@pytest.mark.parametrize("seed", range(12))
def test_same_as_row_by_row(tmp_path, seed, monkeypatch):
    if seed % 4 == 0:
        monkeypatch.setattr(sum_columns, "KEPT_BYTES", 1000)  # most columns go to the temporary file
    if seed % 3 == 0:
        monkeypatch.setattr("normscope.run_files.weight_rows.ROWS_AT_ONCE", 5)  # one tensor at a time
    with Run(random_run(tmp_path / "run.db", seed)) as run:
        for stage in run.stages():
            for by in ("total", "layer", "tensor"):
                for scope in ("body", "all"):
                    for pairs in (None, "checkpoints", "updates"):
                        steps, previous, expected = slow(run, by, scope, stage, pairs)
                        got = group(run, by=by, scope=scope, stage=stage, pairs=pairs)
                        assert got.steps.tolist() == steps and got.previous.tolist() == previous
                        for name in NAMES:
                            array = getattr(got, name)
                            for i, step in enumerate(steps):
                                for j, of in enumerate(got.groups):
                                    np.testing.assert_allclose(
                                        array[i, j], expected[name, step, of], rtol=1e-13
                                    )


def test_what_was_read_is_forgotten_when_something_is_written(tmp_path):
    make_run(tmp_path / "run.db")
    with Run(tmp_path / "run.db", write=True) as writer, Run(tmp_path / "run.db") as reader:
        first = [group(run).sumsq[0, 0] for run in (writer, reader)]
        with writer.transaction():
            writer.write([WeightRow(0, NO_PREVIOUS, 0, 1000.0)])
            within = group(writer).sumsq[0, 0]
        after = [group(run).sumsq[0, 0] for run in (writer, reader)]
        assert first[0] == first[1] and after == [within, within] and within > first[0] + 500


def test_what_was_undone_is_not_remembered(tmp_path):
    make_run(tmp_path / "run.db")
    with Run(tmp_path / "run.db", write=True) as run:
        first = group(run).sumsq[0, 0]
        with pytest.raises(ZeroDivisionError), run.transaction():
            run.write([WeightRow(0, NO_PREVIOUS, 0, 1000.0)])
            assert group(run).sumsq[0, 0] != first
            raise ZeroDivisionError
        assert group(run).sumsq[0, 0] == first


@pytest.fixture(scope="module")
def many_rows(tmp_path_factory):
    """60,000 rows: as Python objects, more than 30 MB."""
    path = tmp_path_factory.mktemp("many") / "run.db"
    steps = list(range(600))
    with Run.create(path) as run, run.transaction():
        run.write(CheckpointRow(step, f"s{step}", "made") for step in steps)
        for i in range(100):
            run.add_tensors([TensorRow(i, f"h.{i}.mlp.c_fc.weight", "model", i, "mlp in", (2, 2), "F32", 4)])
            run.write_sums(("", s, s - 1, i, 1.0 + s, 0.2, 0.3, 1.0, 1.0, 0) for s in steps)
    return path


def test_rows_are_never_objects_all_at_once(many_rows, tmp_path, monkeypatch):
    monkeypatch.setattr("normscope.run_files.weight_rows.ROWS_AT_ONCE", 2000)
    monkeypatch.setattr("normscope.views.export_file.ROWS_AT_ONCE", 2000)
    fetched = []
    query = Run.query

    def counted(self, sql, parameters=()):
        rows = query(self, sql, parameters)
        fetched.append(len(rows))
        return rows

    monkeypatch.setattr(Run, "query", counted)
    with Run(many_rows) as run:
        tracemalloc.start()
        for by in ("total", "layer", "role"):
            group(run, by=by).measure("cosine")
        export(run, tmp_path / "weights.csv")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert max(fetched) <= 2000
    assert sum(fetched) < 2.2 * 60_000  # once for all groupings, once for the export
    assert peak < 10e6
    assert len((tmp_path / "weights.csv").read_text().splitlines()) == 60_001
