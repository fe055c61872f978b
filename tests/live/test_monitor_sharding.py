"""One process = DDP = FSDP1 = FSDP2 = tensor parallel = pipeline stages, row by row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from normscope.live.model.sharding import local_parameters
from normscope.run import Run
from tests.live.sharded_training import BATCH, make, run_sharded, train

SQL = """
SELECT step, prev_step, name, shape, dtype,
       sumsq, dot, sumsq_delta, nonfinite, grad_sumsq, grad_dot, lr, weight_decay
FROM tensor LEFT JOIN weight ON tensor.id = weight.tensor ORDER BY step, name
"""


def rows(path: Path) -> list[tuple[object, ...]]:
    with Run(path) as run:
        return run.query(SQL)


def settings(path: Path) -> list[tuple[object, ...]]:
    sql = "SELECT step, name, kind, momentum, coupled FROM optimizer JOIN tensor ON tensor.id = tensor"
    with Run(path) as run:
        return run.query(f"{sql} ORDER BY step, name")


def numbers(values: tuple[object, ...]) -> list[float]:
    return [float("nan") if value is None else float(value) for value in values]  # type: ignore[arg-type]


def check(modes: list[str], world: int, folder: Path, others: list[str] | None = None) -> None:
    run_sharded([*modes, *(others or [])], world, folder)
    for mode in modes:
        train(make(mode), slice(0, BATCH), folder / f"{mode}.db")
        alone, together = rows(folder / f"{mode}.db"), rows(folder / f"{mode}-{world}.db")
        assert len(alone) == len(together)
        assert settings(folder / f"{mode}-{world}.db") == settings(folder / f"{mode}.db") != []
        for a, b in zip(alone, together, strict=True):
            assert a[:5] == b[:5], mode
            assert numbers(b[5:]) == pytest.approx(numbers(a[5:]), rel=1e-7, abs=1e-12, nan_ok=True), mode


def test_two_processes_write_the_rows_of_one(tmp_path: Path) -> None:
    check(["ddp", "fsdp1", "fsdp2", "tp", "stages"], 2, tmp_path, ["failing ddp"])
    steps = [{row[0] for row in rows(tmp_path / name)} for name in ("ddp-2.db", "failing ddp-2.db")]
    assert steps == [{None, 0, 1, 3}, {None, 0, 3}]  # None: the tied tensor, which has no rows


@pytest.mark.parametrize("rank", range(4))
def test_along_replicated_dimensions_only_the_first_rank_counts(rank: int) -> None:
    """A mesh [[0, 1], [2, 3]], seen from each of its ranks; nothing is sent."""
    dist.init_process_group("fake", rank=rank, world_size=4, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (2, 2))
        row, column = divmod(rank, 2)
        first = {
            (Replicate(), Replicate()): rank == 0,
            (Replicate(), Shard(0)): row == 0,
            (Shard(0), Replicate()): column == 0,
            (Shard(0), Shard(1)): True,
        }
        model = nn.Module()
        values = torch.ones(2 + rank, 2)  # torch remembers the mesh, and so the rank, of equal shapes
        for i, placements in enumerate(first):
            shard = DTensor.from_local(values, mesh, placements, run_check=False)
            model.register_parameter(f"w{i}", nn.Parameter(shard))
        found, skipped = local_parameters(model)
        assert [each.first for each in found] == list(first.values()) and not skipped
        assert all(each.team == frozenset(range(4)) for each in found)
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_a_program_may_end_right_after_a_sum(pairs: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.live.ending_after_a_sum", str(tmp_path), str(pairs)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.stderr) == ("0\n", "")


@pytest.mark.slow
def test_four_processes_write_the_rows_of_one(tmp_path: Path) -> None:
    modes = ["ddp", "fsdp1", "fsdp1-hybrid", "fsdp2", "fsdp2-hybrid", "tp", "tp+fsdp2", "stages"]
    check(modes, 4, tmp_path)
