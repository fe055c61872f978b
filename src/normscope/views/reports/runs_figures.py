"""The figures of several runs: their norms, exponents and groups over one another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from normscope.anatomy import of_scope
from normscope.theory.laws.intervals import Interval
from normscope.theory.laws.laws import Array
from normscope.theory.run_cards import GroupNorms, RunCard
from normscope.views.figures.groups import group_style
from normscope.views.figures.lines import (
    EXPONENT_AXIS,
    LINE_POINTS,
    axis_title,
    category_points,
    curve,
    error_bars,
    group_line,
    scale_bar,
    styled,
)
from normscope.views.page import palette
from normscope.views.page.formatting import count, label, number, plural, points_to_draw
from normscope.views.page.page_parts import Button, FigureSpec, Trace
from normscope.words import OUTSIDE, by_layer, printable

Whole = NDArray[np.int64]
MOST_BUTTONS = 12  # runs that have a picture of their groups of their own


def scope_of_all(cards: Sequence[RunCard]) -> str:
    """The scope that all runs have; empty if they differ, or if it is not known of one."""
    scopes = {card.norms.scope for card in cards}
    return scopes.pop() if len(scopes) == 1 else ""


def unit_of_all(cards: Sequence[RunCard]) -> str:
    """What all series measure; "value" if they differ."""
    units = {card.norms.unit or "norm" for card in cards}
    return units.pop() if len(units) == 1 else "value"


def common_last(cards: Sequence[RunCard]) -> int | None:
    """The last step that all runs cover; None if they have none in common."""
    first, last = max(int(card.norms.steps[0]) for card in cards), min(_last(card) for card in cards)
    return last if first <= last else None


def _last(card: RunCard) -> int:
    return int(card.norms.steps[-1])


def norms_figure(cards: Sequence[RunCard]) -> FigureSpec:
    """The norm of every run over the steps; buttons show it over tokens, or relative to its first value."""
    unit, scope = unit_of_all(cards), scope_of_all(cards)
    axis = axis_title(unit, scope)
    traces = [_line(card, i, card.norms.steps, card.norms.values, "steps") for i, card in enumerate(cards)]
    buttons = [Button("steps", "by step", axis)]
    relative = [_relative(card) for card in cards]
    if all(part is not None for part in relative):
        buttons.append(
            Button("relative", "relative to the start", f"{unit}{of_scope(scope)} / its first value")
        )
        traces += [
            _line(card, i, card.norms.steps, part, "relative")
            for i, (card, part) in enumerate(zip(cards, relative, strict=True))
            if part is not None
        ]
    over_tokens = [line for i, card in enumerate(cards) if (line := _over_tokens(i, card))]
    if over_tokens:
        buttons.append(Button("tokens", "by tokens", axis, "tokens"))
        traces += over_tokens
    return FigureSpec(
        "norms",
        _norms_title(cards, unit, scope),
        traces,
        {"yaxis": {"title": {"text": axis}}},
        _tokens_note(cards),
        460,
        step_axis=True,
        log_y=True,
        buttons=buttons if len(buttons) > 1 else (),
        wide=True,
    )


def has_tokens(card: RunCard) -> bool:
    """Whether the tokens seen are known at two steps or more."""
    return card.tokens is not None and int(np.isfinite(card.tokens).sum()) > 1


def _relative(card: RunCard) -> Array | None:
    first = card.norms.values[0]
    return card.norms.values / first if first > 0 else None


def _over_tokens(i: int, card: RunCard) -> Trace | None:
    """The norm of a run over its tokens; None where these are not known."""
    if card.tokens is None or not has_tokens(card):
        return None
    known = np.isfinite(card.tokens)
    return _line(card, i, card.tokens[known].astype(np.int64), card.norms.values[known], "tokens")


def _line(card: RunCard, i: int, x: Whole, heights: Array, part: str) -> Trace:
    kept = points_to_draw(len(x))
    trace = curve(x[kept], heights[kept], label(card.name), palette.category(i), set=part)
    trace["line"] = {"color": palette.category(i), "width": 2, "dash": palette.dash(i)}
    word = "tokens" if part == "tokens" else "step"
    trace["hovertemplate"] = f"{label(card.name)}<br>{word} %{{customdata:,}}<br>%{{y:.5g}}<extra></extra>"
    return trace


def _norms_title(cards: Sequence[RunCard], unit: str, scope: str) -> str:
    what, last = f"{unit}{of_scope(scope)}", common_last(cards)
    if last is None:
        return f"The {what} of {plural(len(cards), 'run')}, which have no step in common"
    ends = sorted((float(value_at(card, last)), card.name) for card in cards)
    (low, lowest), (high, highest) = ends[0], ends[-1]
    ends_words = f"between {number(low)} ({printable(lowest)}) and {number(high)} ({printable(highest)})"
    return f"At step {count(last)}, the last that all cover, the {what} is {ends_words}"


def value_at(card: RunCard, step: float) -> float:
    """The norm of a run at a step, linear between its own."""
    return float(np.interp(step, card.norms.steps, card.norms.values))


def _tokens_note(cards: Sequence[RunCard]) -> str:
    known = [card for card in cards if has_tokens(card)]
    without = [printable(card.name) for card in cards if not has_tokens(card)]
    if not known or not without:
        return ""
    return f"By tokens: only the runs whose tokens are known; not of {', '.join(without)}."


def exponents_figure(cards: Sequence[RunCard]) -> FigureSpec | None:
    """The free exponent of each run with its interval, if that is narrower than it; None if none is."""
    found = [(i, card, _exponent(card)) for i, card in enumerate(cards)]
    known = [(i, card, p) for i, card, p in found if p is not None and p.tells]
    if not known:
        return None
    traces = [_exponent_point(*each) for each in known]
    wide = [printable(card.name) for _, card, p in found if p is not None and not p.tells]
    without = [printable(card.name) for _, card, p in found if p is None]
    notes = ["Bars are 95 % intervals."]
    if wide:
        notes.append(f"Not drawn, because its interval is wider than the exponent: {', '.join(wide)}.")
    if without:
        notes.append(f"No exponent can be given for {', '.join(without)}.")
    layout = {
        "xaxis": {"type": "category", "title": {"text": "run"}},
        "yaxis": {"title": {"text": EXPONENT_AXIS}},
    }
    values = sorted(p.value for *_, p in known)
    title = f"The exponents of growth are between {number(values[0], 3)} and {number(values[-1], 3)}"
    if len(values) == 1:
        title = f"The exponent of growth of {printable(known[0][1].name)} is {number(values[0], 3)}"
    return FigureSpec("run-exponents", title, traces, layout, " ".join(notes), 320)


def _exponent(card: RunCard) -> Interval | None:
    return None if card.fit is None else card.fit.exponent


def _exponent_point(i: int, card: RunCard, found: Interval) -> Trace:
    colour = palette.category(i)
    trace = category_points([label(card.name)], [found.value], label(card.name), colour)
    bars = error_bars([found.high - found.value], [found.value - found.low], colour)
    hover = f"{label(card.name)}<br>p = %{{y:.3f}}<extra></extra>"
    return trace | {"error_y": bars, "hovertemplate": hover, "showlegend": False}


def groups_figure(cards: Sequence[RunCard], by: str) -> FigureSpec:
    """The norm of each group of each run over the steps: a button for each run, one colour for each group."""
    groups = by_layer(dict.fromkeys(name for card in cards for name in card.groups[by].groups))
    looks = dict(styled(groups, group_style(by, groups)))
    shown = list(cards[:MOST_BUTTONS])
    traces = [
        trace for i, card in enumerate(shown) for trace in _group_lines(card.groups[by], looks, f"run {i}")
    ]
    scope = scope_of_all(cards)
    top = max(float(np.nanmax(card.groups[by].values)) for card in shown)
    layout = {"yaxis": {"title": {"text": axis_title("norm", scope)}, "range": [0, 1.05 * top]}}
    depths = sum(name != OUTSIDE for name in groups)
    bar = [scale_bar(depths, "layer")] if by == "layer" else []
    note = "Every run has the same axis, and every group one colour in all runs."
    if len(cards) > len(shown):
        note = f"{note} The first {MOST_BUTTONS} of {len(cards)} runs."
    return FigureSpec(
        f"run-{by}s",
        f"The norm of each {by} over the steps, run by run",
        [*traces, *bar],
        layout,
        note,
        step_axis=True,
        buttons=[Button(f"run {i}", printable(card.name)) for i, card in enumerate(shown)],
    )


def _group_lines(found: GroupNorms, looks: dict[str, Trace], part: str) -> list[Trace]:
    kept = points_to_draw(len(found.steps), LINE_POINTS)
    lines = []
    for name, heights in zip(found.groups, found.values.T, strict=True):
        if name in looks:
            line = group_line(found.steps[kept].astype(np.int64), heights[kept], name, "norm", looks[name])
            lines.append(line | {"set": part})
    return lines


def last_norms_figure(cards: Sequence[RunCard], by: str, step: int) -> FigureSpec:
    """The norm of each group in all runs at one step: a line for each run."""
    names = by_layer(cards[0].groups[by].groups)
    traces = []
    for i, card in enumerate(cards):
        at = dict(zip(card.groups[by].groups, card.groups[by].at(step).tolist(), strict=True))
        trace = category_points(
            [label(name) for name in names], [at.get(name) for name in names], label(card.name), ""
        )
        trace |= {"mode": "lines+markers" if by == "layer" else "markers"}
        trace["marker"] = {"color": palette.category(i), "size": 7}
        trace["line"] = {"color": palette.category(i), "width": 1.6, "dash": palette.dash(i)}
        trace["hovertemplate"] = f"{label(card.name)}<br>%{{x}}<br>norm %{{y:.5g}}<extra></extra>"
        traces.append(trace)
    layout = {
        "xaxis": {"type": "category", "title": {"text": by}},
        "yaxis": {"title": {"text": axis_title("norm", scope_of_all(cards))}},
    }
    title = f"The norm of each {by} at step {count(step)}, the last that all cover"
    note = "Between two measured steps, values are interpolated."
    return FigureSpec(f"last-{by}s", title, traces, layout, note)
