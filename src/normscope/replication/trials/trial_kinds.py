"""Every kind of trial, by the name that experiments use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from normscope.replication.trials.trial_context import Document, TrialContext

RunTrials = Callable[[Mapping[str, Any], TrialContext], list[Document]]

TRIAL_KINDS: Mapping[str, str] = {
    "training": "normscope.replication.trials.trained_networks:run_trainings",
    "automaton": "normscope.replication.trials.trained_automata:run_automata",
    "series": "normscope.replication.trials.growth_series:study_series",
    "scaling": "normscope.replication.trials.random_networks:scale_networks",
    "pretrained": "normscope.replication.trials.pretrained_models:study_pretrained",
}
"""Kind → module:function; imported when used, since listing the claims needs neither torch nor scipy."""


def run_trials(kind: str, settings: Mapping[str, Any], context: TrialContext) -> list[Document]:
    """Run the trials of a kind that have no result yet, and return the documents of all."""
    place, _, name = TRIAL_KINDS[kind].partition(":")
    run: RunTrials = getattr(import_module(place), name)
    return run(settings, context)
