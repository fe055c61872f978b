"""Rows of a run file, one stage at a time."""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

from normscope.rows import TABLE_OF, HeadRow, SaturationRow, ScalarRow, SimilarityRow
from normscope.run import Run

R = TypeVar("R", HeadRow, SaturationRow, ScalarRow, SimilarityRow)


def stage_rows(run: Run, kind: type[R], stage: str, order: str) -> list[R]:
    """All rows of one kind in a stage; `order` lists the columns to sort by."""
    names = ", ".join(field.name for field in fields(kind))
    sql = f"SELECT {names} FROM {TABLE_OF[kind]} WHERE stage = ? ORDER BY {order}"
    return [kind(*row) for row in run.query(sql, (stage,))]
