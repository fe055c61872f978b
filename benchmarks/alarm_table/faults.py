"""Trainings with a fault, in several variants each."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.alarm_table.training import Case

TUNED: Sequence[tuple[str, Sequence[str], Case]] = ()
KEPT_APART: Sequence[tuple[str, Sequence[str], Case]] = ()
