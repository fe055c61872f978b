"""The alarms that the monitor raised while the model trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from normscope.run import Run
from normscope.views.page.formatting import count, number, plural
from normscope.views.page.page_parts import Section, TableSpec
from normscope.words import printable

MOST_ALARMS = 200


def section(run: Run, stage: str) -> Section | None:
    """The alarms of a stage in the order they were raised; None if there were none."""
    found: list[Mapping[str, Any]] = run.artifacts("alarm").get(stage, [])
    if not found:
        return None
    rows = [
        (
            int(alarm["step"]),
            printable(alarm.get("severity", "warning")),  # files of earlier releases have none
            printable(alarm["kind"]),
            printable(alarm["where"]),
            printable(alarm["message"]),
            _evidence(alarm),
        )
        for alarm in found[:MOST_ALARMS]
    ]
    step, *_, message, _ = rows[0]
    critical = sum(alarm.get("severity") == "critical" for alarm in found)
    of_them = f" ({count(critical)} critical)" if critical else ""
    number_of = plural(len(found), "alarm")
    first = f"The monitor raised {number_of}{of_them}, the first at step {count(step)}: {message}."
    note = f"The first {MOST_ALARMS} of {count(len(found))}." if len(found) > MOST_ALARMS else ""
    columns = ("step", "severity", "kind", "where", "what was seen", "evidence")
    table = TableSpec("alarms", "Alarms", columns, rows, note)
    return Section("alarms", "Alarms", [first, "An alarm is a reason to look, not a verdict."], [table])


def _evidence(alarm: Mapping[str, Any]) -> str:
    numbers: Mapping[str, float] = alarm.get("evidence") or {}
    return ", ".join(f"{printable(name)} {number(value)}" for name, value in numbers.items())
