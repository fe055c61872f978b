"""What to do: the advice about a run, before all figures."""

from __future__ import annotations

from normscope.theory.advice.advice_result import AdviceList
from normscope.views.page.page_parts import AdviceLine, Section
from normscope.words import printable


def sections(found: AdviceList | None) -> list[Section]:
    """The advice, the most urgent first, and what could not be judged below it; none without advice.

    That the series is not sound stands in a box above.
    """
    if found is None:
        return []
    lines = [
        AdviceLine(each.severity, printable(each.sentence), each.certainty, printable(each.command))
        for each in found
        if each.kind != "unsound"
    ]
    unknown = " ".join(map(printable, found.unknown))
    return [Section("advice", "What to do", advice=lines, note=unknown)] if lines else []
