"""A monitor on some ranks only is found out at construction, with a sentence, not after a timeout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def answers(folder: Path, who: str) -> list[list[str]]:
    program = [sys.executable, "-m", "tests.live.one_rank_alone"]
    children = [
        subprocess.Popen(
            [*program, str(rank), str(folder), who],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for rank in range(2)
    ]
    return [child.communicate(timeout=120)[0].strip().split("|") for child in children]


def test_only_rank_0_has_a_monitor(tmp_path: Path) -> None:
    first, _ = answers(tmp_path, "rank 0")
    assert first[1] == "True"
    assert "every rank must create its Monitor, but rank 1 of 2 did not within 3 seconds" in first[2]
    assert "if rank == 0" in first[2]


@pytest.mark.slow
def test_all_ranks_have_one(tmp_path: Path) -> None:
    assert [answer[2] for answer in answers(tmp_path, "everyone")] == ["fine", "fine"]
