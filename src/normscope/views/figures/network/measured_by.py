"""Who measured the network at a step, in words, and which steps are therefore not in a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from normscope.rows import STUDY_NOTES, step_key
from normscope.run import Run
from normscope.theory.effects.measured_steps import STUDY, TRAINING, UNKNOWN
from normscope.views.page.formatting import count, plural
from normscope.views.page.page import provenance

WAYS = {
    TRAINING: "while it trained, on a probe batch{of_tokens}",
    STUDY: "by “normscope saturate”, on a saved checkpoint{and_tokens}",
    UNKNOWN: "on a text{of_tokens}",
}
NOT_SHOWN = ("warnings", "look_ahead", "tolerance")
OTHERS = {
    TRAINING: "“normscope saturate” measured, on another text",
    STUDY: "the training itself measured, on its probe batch",
    UNKNOWN: "were measured another way",
}


def way_sentence(way: str, tokens: Sequence[int] = (), step: int | None = None) -> list[str]:
    """ "Measured while it trained, on a probe batch of 512 tokens."; nothing where nothing is known."""
    if way == UNKNOWN and not tokens:
        return []
    low, high = (min(tokens), max(tokens)) if tokens else (0, 0)
    text = plural(low, "token") if low == high else f"{count(low)} to {count(high)} tokens"
    words = WAYS[way].format(
        of_tokens=f" of {text}" if tokens else "", and_tokens=f" and {text}" if tokens else ""
    )
    return [f"Measured {words}{f' (step {count(step)})' if step is not None else ''}."]


def made_by(run: Run, stage: str, step: int, way: str) -> dict[str, str]:
    """Model, text, command, commit and time of a measurement, as far as the run file has them."""
    if way != STUDY:
        names = ("command", "source", "time", "versions")
        source = {name: run.meta[name] for name in names if name in run.meta}
        return _in_words({"step": count(step), **source}) if way == TRAINING else {}
    note: Mapping[str, Any] = run.artifacts(STUDY_NOTES)[step_key(stage, step)]
    kept = {name: value for name, value in note.items() if name not in NOT_SHOWN and value not in (None, "")}
    return _in_words({"step": count(step), **kept})


def _in_words(entries: Mapping[str, Any]) -> dict[str, str]:
    shown = {"text": "text (digest)", "sentence": "sentence shown", "baseline": "random baseline"}
    return provenance({shown.get(name, name): value for name, value in entries.items()})


def left_out_sentence(way: str, steps: Sequence[int]) -> list[str]:
    """Which steps are not in the lines over training, because they were measured another way."""
    if not steps:
        return []
    named = f"step {count(steps[0])}" if len(steps) == 1 else plural(len(steps), "step")
    return [f"Not in the lines over training: {named} that {OTHERS[way]}."]
