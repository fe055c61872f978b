"""What growth does: norm, attention, saturation and activations of one run, in one section."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from normscope.anatomy import of_scope
from normscope.run import Run
from normscope.table import Value
from normscope.theory.effects.curves import Change, Curves
from normscope.theory.effects.growth_effects import GrowthEffects, growth_effects
from normscope.theory.measures.time_series import Series
from normscope.views.figures.network.effect_panels import (
    interpolated,
    is_one_type,
    norm_figure,
    norm_text,
    step_figure,
)
from normscope.views.figures.network.measured_by import left_out_sentence, way_sentence
from normscope.views.page.formatting import count, number, plural
from normscope.views.page.page_parts import FigureSpec, Section, SectionPart, TableSpec
from normscope.words import joined

HEADING = "What growth does"
READING = (
    "As parameters grow, attention logits can grow with them: attention becomes sharper, and the network "
    "comes closer to its saturated limit. The lines show whether this happened here, not why."
)
NAMES = {
    "saturation": "the mean saturation of the layers",
    "logit": "the largest attention logit",
    "entropy": "the mean attention entropy (1 = uniform)",
    "residual": "the residual stream after the last layer",
    "output": "the norm of the output logits",
}
BOUNDED = ("saturation", "entropy")  # differences under 0.01 are no change; of the others, under 2 %
MOST_CLAUSES = 2
COLUMNS = {
    "logit": "largest logit",
    "entropy": "mean entropy",
    "saturation": "mean saturation",
    "residual": "last residual norm",
    "output": "output norm",
}


def section(run: Run, stage: str, norms: Series | None) -> Section | None:
    """Figures and a table of what growth does; None if there is nothing that other sections do not show."""
    effects = growth_effects(run, stage, norms)
    if effects is None or not _worth_showing(effects):
        return None
    parts: list[SectionPart] = [*figures(effects), _table(effects)]
    return Section("effects", HEADING, [READING, *_how_measured(effects)], parts)


def _worth_showing(effects: GrowthEffects) -> bool:
    """Saturation and heads alone, without a norm or over one step, have their own sections."""
    own = any(curves.quantity not in ("saturation", "types") for curves in effects.curves)
    return own or (effects.norm is not None and len(effects.steps) > 1)


def figures(effects: GrowthEffects) -> list[FigureSpec]:
    """Over the steps and against the norm; of a single step there is no figure."""
    if len(effects.steps) < 2:
        return []
    found = [step_figure(effects, finding(effects), _note(effects))]
    if effects.norm is None:
        return found
    against = norm_figure(effects, _against_title(effects), _interpolated(effects))
    return [*found, *([against] if against else [])]


# -- the finding --------------------------------------------------------------------------


def finding(effects: GrowthEffects) -> str:
    """What happened between the first and the last step at which the network was measured."""
    named = _named_changes(effects)
    if not named:
        return f"The network was measured at {plural(len(effects.steps), 'step')}"
    clauses = [_clause(name, change) for name, change in named]
    since, until = named[0][1].first_step, named[0][1].last_step
    text = joined(clauses)
    norm = effects.norm.change(since, until) if effects.norm else None
    if norm is not None:
        text = f"While the norm{of_scope(effects.scope)} {_norm_clause(norm)}, {text}"
    return f"{text[:1].upper()}{text[1:]} (steps {count(since)} to {count(until)}){_uncertain(effects)}"


def _named_changes(effects: GrowthEffects) -> list[tuple[str, Change]]:
    """The first quantities that were measured at the same two ends, where the norm is known too."""
    norm = effects.norm
    since, until = (norm.steps[0], norm.steps[-1]) if norm else (0, None)
    found: list[tuple[str, Change]] = []
    for name in NAMES:
        curves = effects.get(name)
        change = curves.change(since, until) if curves else None
        if change and (not found or _ends(change) == _ends(found[0][1])):
            found.append((name, change))
    return found[:MOST_CLAUSES]


def _ends(change: Change) -> tuple[int, int]:
    return change.first_step, change.last_step


def _norm_clause(change: Change) -> str:
    first, last = number(change.first), number(change.last)
    if abs(change.ratio - 1) < 0.01:
        return f"stayed near {first}"
    return f"{'grew' if change.ratio > 1 else 'shrank'} from {first} to {last} (×{number(change.ratio, 3)})"


def _clause(name: str, change: Change) -> str:
    first, last = number(change.first, 3), number(change.last, 3)
    turn = change.turn
    passing = ""
    if turn is not None and not _same(name, turn[1], change.first) and not _same(name, turn[1], change.last):
        kind = "peak" if turn[1] > max(change.first, change.last) else "low"
        passing = f" ({kind} {number(turn[1], 3)} at step {count(turn[0])})"
    if _same(name, change.first, change.last):
        return f"{NAMES[name]} was {first} at the start and {last} at the end{passing}"
    verb = "rose" if change.last > change.first else "fell"
    return f"{NAMES[name]} {verb} from {first} to {last}{passing}"


def _same(name: str, one: float, other: float) -> bool:
    limit = 0.01 if name in BOUNDED else 0.02 * max(abs(one), abs(other))
    return abs(one - other) < limit


def _uncertain(effects: GrowthEffects) -> str:
    curves = effects.get("saturation")
    few = effects.unconverged.get(curves.steps[-1], 0) if curves else 0
    return f"; {few} of {plural(effects.layers, 'layer')} did not converge" if few else ""


def _against_title(effects: GrowthEffects) -> str:
    """First and last value of each quantity in the range of the recorded norms."""
    words = {"saturation": "saturation", "logit": "largest logit", "entropy": "attention entropy"}
    norm = effects.norm
    assert norm is not None
    ends = (norm.steps[0], norm.steps[-1])
    found = ((words[name], curves.change(*ends)) for name in words if (curves := effects.get(name)))
    parts = [f"{name} {number(c.first, 3)} to {number(c.last, 3)}" for name, c in found if c]
    return f"Against the norm{of_scope(effects.scope)}: {joined(parts)}"


# -- how it was measured ------------------------------------------------------------------


def _how_measured(effects: GrowthEffects) -> list[str]:
    return [
        *(way_sentence(effects.by, effects.tokens) if effects.tokens else ()),
        *_attention_sentence(effects),
        *_type_sentence(effects),
        *_unknown_sentences(effects),
        *left_out_sentence(effects.by, effects.left_out),
    ]


def _attention_sentence(effects: GrowthEffects) -> list[str]:
    if effects.attention == "training":
        return ["Logits and entropies are those of the training batches, which differ from step to step."]
    return []


def _type_sentence(effects: GrowthEffects) -> list[str]:
    """What a panel of one colour would show."""
    types = effects.get("types")
    if types is None or not is_one_type(types):
        return []
    return [f"Every head is {types.told} at every measured step."]


def _unknown_sentences(effects: GrowthEffects) -> list[str]:
    found = []
    for name, words in NAMES.items():
        curves = effects.get(name)
        missing = curves.unknown() if curves else []
        if missing:
            steps = plural(len(missing), "step")
            found.append(f"At {steps}, from step {count(missing[0])} on, {words} is not a finite number.")
    return found


def _note(effects: GrowthEffects) -> str:
    entropy = "An entropy of 1 is that of equal attention to all positions." if effects.get("entropy") else ""
    hollow = "Hollow points: some layers have not converged." if effects.unconverged else ""
    return " ".join(text for text in (entropy, hollow) if text)


def _interpolated(effects: GrowthEffects) -> str:
    n = interpolated(effects)
    if not n:
        return "One point per measured step, in the order of training."
    return (
        f"One point per measured step. At {plural(n, 'step')} the norm is interpolated between two records."
    )


def _table(effects: GrowthEffects) -> TableSpec:
    names = [name for name in COLUMNS if effects.get(name)]
    types = effects.get("types")
    kinds = [f"{kind} %" for kind in types.lines] if types else []
    columns = ["step", f"norm{of_scope(effects.scope)}", *(COLUMNS[name] for name in names), *kinds]
    rows = [_row(effects, step, names) for step in effects.steps]
    return TableSpec("effects", f"{HEADING}, by step", columns, rows, folded=True)


def _row(effects: GrowthEffects, step: int, names: Sequence[str]) -> list[Value]:
    told = [(curves, curves.told) for name in names if (curves := effects.get(name))]
    types = effects.get("types")
    told += [(types, kind) for kind in types.lines] if types else []
    return [step, norm_text(effects, step), *(_cell(curves, line, step) for curves, line in told)]


def _cell(curves: Curves, line: str, step: int) -> float | None:
    """The value of a line at a step; None if it was not measured there or is not finite."""
    value = dict(zip(curves.steps, curves.lines[line], strict=True)).get(step)
    return value if value is not None and np.isfinite(value) else None
