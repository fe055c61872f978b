"""Spectral norms in one process = DDP = FSDP1 = FSDP2 = tensor parallel = pipeline stages = an SVD."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from normscope.run import Run
from tests.live.sharded_training import BATCH, make, run_sharded, train

SQL = """
SELECT spectrum.step, name, spectral_norm, norm, method, detail
FROM spectrum JOIN tensor ON tensor.id = spectrum.tensor ORDER BY spectrum.step, name
"""


def spectra(path: Path) -> dict[tuple[int, str], tuple[float, float, dict[str, float]]]:
    with Run(path) as run:
        rows = run.query(SQL)
    assert {row[4] for row in rows} == {"power"}
    return {(step, name): (value, norm, json.loads(detail)) for step, name, value, norm, _, detail in rows}


def check(modes: list[str], world: int, folder: Path) -> None:
    run_sharded([f"spectral {mode}" for mode in modes], world, folder)
    for mode in modes:
        truth = train(make(mode), slice(0, BATCH), folder / f"{mode}.db", spectral=True)
        alone, together = spectra(folder / f"{mode}.db"), spectra(folder / f"spectral {mode}-{world}.db")
        assert sorted({step for step, _ in together}) == [0, 1, 3], mode
        assert alone.keys() == together.keys()
        assert len(together) == 3 * (8 if mode == "stages" else 4)
        for key, (value, norm, detail) in together.items():
            assert (value, norm) == pytest.approx(alone[key][:2], rel=1e-9), (mode, key)
            assert abs(value - truth[key]) <= detail["error"]["spectral_norm"] + 1e-12, (mode, key)
            assert value == pytest.approx(truth[key], rel=1e-5 if detail["converged"] else 1e-2), (mode, key)
        assert all(detail["converged"] for (step, _), (_, _, detail) in together.items() if step == 0)


@pytest.mark.slow
def test_two_processes_agree_with_an_svd(tmp_path: Path) -> None:
    check(["ddp", "fsdp1", "fsdp2", "tp", "stages"], 2, tmp_path)


@pytest.mark.slow
def test_four_processes_agree_with_an_svd(tmp_path: Path) -> None:
    check(["fsdp2-hybrid", "fsdp1-hybrid", "tp", "tp+fsdp2"], 4, tmp_path)
