"""What `ns.plot` draws of automata; their classes are typed Any, because importing them loads torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from normscope.views.figures.network.automata import automata_figure
from normscope.views.page.formatting import plural
from normscope.views.plotting.drawings import Drawing
from normscope.words import joined

NAMES = {
    "model": "the model",
    "scaled": "the saturated network",
    "exact": "the saturated network with exact attention",
}


def of_automaton(found: Any) -> Drawing:
    """One automaton alone."""
    words = plural(len(found), "state")
    figure = automata_figure(f"An automaton over {joined(found.alphabet)} with {words}", {"automaton": found})
    return Drawing(f"{words} · {plural(len(found.alphabet), 'symbol')}", [figure])


def of_network_automaton(found: Any) -> Drawing:
    """The automata of the language, the model and its saturated network, equal ones once."""
    networks = _networks(found)
    automata = {
        found.task: found["language"].automaton,
        **{name: row.automaton for name, row in networks.items()},
    }
    longest = max(row.length for row in found.automata)
    horizon = max(row.horizon for row in found.automata)
    which = "all strings" if found.strings == "all" else "strings that each network allows"
    scope = f"{found.task} · {which}, up to length {longest} · horizon {horizon} · c = {found.scale:g}"
    return Drawing(scope, [automata_figure(_title(found.task, networks), automata)], found.warnings)


def _networks(found: Any) -> dict[str, Any]:
    """The networks by name; without exact attention if it changes nothing."""
    rows = {row.network: row for row in found.automata[1:]}
    known = [(row.automaton, row.equivalent, row.difference) for row in list(rows.values())[-2:]]
    if {"scaled", "exact"} <= set(rows) and known[0] == known[1]:
        del rows["exact"]
    return {NAMES[network]: row for network, row in rows.items()}


def _title(task: str, networks: Mapping[str, Any]) -> str:
    """Which networks are the language, and which are not."""
    same = joined(name for name, row in networks.items() if row.equivalent)
    other = joined(name for name, row in networks.items() if row.equivalent is False)
    if not same and not other:
        return f"Automata of networks that were trained on {task}"
    if not same:
        return f"The automaton of {other} is not that of {task}"
    return f"The automaton of {same} is that of {task}" + (f"; that of {other} is not" if other else "")
