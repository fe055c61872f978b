"""Probes and observed attention over several processes: the rows of one, and the training of none."""

from __future__ import annotations

from pathlib import Path

import pytest

import normscope as ns
from tests.live.sharded_probes import BATCH, model, run_sharded, train


def rows(path: Path, sql: str) -> dict[tuple[object, ...], list[float]]:
    with ns.Run(path) as run:
        return {tuple(row[:4]): [float(v) for v in row[4:] if v is not None] for row in run.query(sql)}


ATTENTION = "SELECT step, source, module, head, logit, entropy, relative_entropy FROM attention"
ACTIVATION = "SELECT step, kind, module, layer, norm, tokens FROM activation"
SATURATION = "SELECT step, layer, module, tokens, cosine FROM saturation"
HEADS = "SELECT step, module, head, layer, effective, largest, distance, first FROM head"


def compare(one: Path, other: Path, sql: str, tolerance: float = 1e-4) -> int:
    alone, together = rows(one, sql), rows(other, sql)
    assert alone.keys() == together.keys()
    for key, values in alone.items():
        assert together[key] == pytest.approx(values, rel=tolerance, abs=tolerance), key
    return len(alone)


def test_several_processes_write_the_rows_of_one(tmp_path: Path) -> None:
    run_sharded(["ddp", "fsdp2"], 2, tmp_path)
    assert unchanged(tmp_path) == ["ddp-0-same", "ddp-1-same", "fsdp2-0-same", "fsdp2-1-same"]
    train(model(), slice(0, BATCH), tmp_path / "alone.db")
    for mode in ("ddp", "fsdp2"):
        for sql in (ATTENTION, ACTIVATION, SATURATION, HEADS):
            assert compare(tmp_path / "alone.db", tmp_path / f"{mode}.db", sql, 1e-3) >= 6


def unchanged(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*-same"))


@pytest.mark.slow
def test_where_ranks_have_different_parts_it_is_said(tmp_path: Path) -> None:
    run_sharded(["tp", "stages"], 2, tmp_path)
    assert unchanged(tmp_path) == ["stages-0-same", "stages-1-same", "tp-0-same", "tp-1-same"]
    train(model(), slice(0, BATCH), tmp_path / "alone.db")
    with ns.Run(tmp_path / "stages.db") as run:
        assert "pipeline stages" in run.meta["monitor.network"]
        assert run.query("SELECT DISTINCT source FROM attention") == [("training",)]
    with ns.Run(tmp_path / "tp.db") as run:
        assert "tensor parallelism" in run.meta["monitor.network"]
        assert "tensor parallelism" in run.meta["monitor.attention"]
    alone, split = rows(tmp_path / "alone.db", ATTENTION), rows(tmp_path / "tp.db", ATTENTION)
    assert split.keys() == {key for key in alone if key[3] in (0, 1)}  # the heads of rank 0
    assert all(split[key] == pytest.approx(alone[key], rel=1e-3) for key in split)
    compare(tmp_path / "alone.db", tmp_path / "tp.db", ACTIVATION)
