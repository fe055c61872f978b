"""Trials that train on a regular language and look for its automaton in the network, soft and saturated."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from normscope.lab.automata.extracted import ExtractedAutomaton
from normscope.lab.automata.network_automaton import NetworkAutomaton, automaton
from normscope.lab.training.checkpointing import load_model
from normscope.replication.trials.trained_networks import run_trainings
from normscope.replication.trials.trial_context import Document, TrialContext, kept_document

NETWORKS = {"language": "language", "soft": "model", "saturated": "exact"}


def run_automata(settings: Mapping[str, Any], context: TrialContext) -> list[Document]:
    """Return the documents of the trainings, each with the automata of its last checkpoint."""
    fields = {name: value for name, value in settings.items() if name != "prefixes"}
    cells = run_trainings({**fields, "save": "0"}, context)  # the first and the last step are always saved
    found: list[Document] = []
    for done, cell in enumerate(cells):
        context.progress(done, len(cells), "extracting automata")
        path = context.folder / "automata" / f"{cell['id']}.json"
        if cell["status"] == "done":
            extracted = kept_document(path, partial(_extract, cell, settings["prefixes"], context.folder))
            cell = {**cell, "automaton": extracted}
        found.append(cell)
    context.progress(len(cells), len(cells), "extracting automata")
    return found


def _extract(cell: Mapping[str, Any], length: int, folder: Path) -> dict[str, Any]:
    checkpoints = sorted((folder / "cells" / cell["id"] / "checkpoints").iterdir())
    found = automaton(load_model(checkpoints[-1]), cell["changes"]["task"], length=length)
    rows = {row.network: row for row in found.automata}
    numbers = {
        f"{name}_{key}": value
        for name, network in NETWORKS.items()
        if network in rows
        for key, value in _numbers(rows[network]).items()
    }
    return {**numbers, "drawn": _drawn(found), "warnings": list(found.warnings)}


def _numbers(row: ExtractedAutomaton) -> dict[str, float | None]:
    """What is known of one automaton; None where it is not."""
    return {
        "classes": float(row.classes),
        "equivalent": None if row.equivalent is None else float(row.equivalent),
        "accuracy": row.accuracy,
        "directions": None if row.directions is None else float(row.directions),
    }


def _drawn(found: NetworkAutomaton) -> dict[str, Any]:
    """The automata themselves, to be drawn."""
    return {
        row.network: {
            "alphabet": row.automaton.alphabet,
            "legal": list(row.automaton.legal),
            "moves": [list(moves) for moves in row.automaton.moves],
        }
        for row in found.automata
    }
