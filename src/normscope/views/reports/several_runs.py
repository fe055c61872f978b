"""The page of several runs: their curves over one another, what differs, and what forbids comparing them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from normscope._version import __version__
from normscope.anatomy import scope_words
from normscope.errors import UsageError
from normscope.progress import Progress, silent
from normscope.remarks import Finding
from normscope.theory.measures.series_sources import Source
from normscope.theory.run_cards import GROUPINGS, RunCard, run_cards
from normscope.views.page.formatting import count, number, plural, size, span
from normscope.views.page.page_parts import Doubts, Fact, Page, Section, SectionPart, Stage
from normscope.views.reports.doubts import doubts
from normscope.views.reports.run_names import short_names
from normscope.views.reports.runs_figures import (
    common_last,
    exponents_figure,
    groups_figure,
    last_norms_figure,
    norms_figure,
    scope_of_all,
    unit_of_all,
    value_at,
)
from normscope.views.reports.runs_table import differences_table, groups_table, runs_table, settings_table
from normscope.words import joined, printable

MOST_RUNS = 40
ALIKE = 0.02  # bodies whose sizes differ by a larger share are models of different sizes


def compared_page(
    sources: Sequence[Source], names: Sequence[str], measure: str | None = None, progress: Progress = silent
) -> Page:
    """The page of several runs, logs or series; `names` are their sources, which it shortens."""
    if len(sources) > MOST_RUNS:
        raise UsageError(f"{len(sources)} runs do not fit on one page: give {MOST_RUNS} at most")
    cards: list[RunCard] = []
    for i, (name, source) in enumerate(zip(short_names(names), sources, strict=True)):
        progress(i, len(sources), f"fitting {name}")
        cards += run_cards(name, source, measure)
    progress(len(sources), len(sources), "drawing")
    written = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    steps = [int(step) for card in cards for step in (card.norms.steps[0], card.norms.steps[-1])]
    return Page(
        title=f"{plural(len(cards), 'run')} compared",
        subject=printable(joined([card.name for card in cards[:4]] + (["others"] if len(cards) > 4 else []))),
        subtitle=f"{plural(len(cards), 'run')} · {span(steps)}",
        stages=[Stage("", _summary(cards), _facts(cards), _sections(cards), _doubts(cards))],
        closing=[],
        warnings=warnings(cards),
        provenance={
            **_origins(sources, names),
            "report written": written,
            "report written by": f"normscope {__version__}",
        },
    )


def _origins(sources: Sequence[Source], names: Sequence[str]) -> dict[str, str]:
    """Where each run comes from, and the run file that was read in its place."""
    return {
        f"run {short}": printable(name if str(source) == name else f"{name}, in the run file {source}")
        for short, name, source in zip(short_names(names), names, sources, strict=True)
        if isinstance(source, str | Path)
    }


def _sections(cards: Sequence[RunCard]) -> list[Section]:
    tables: list[SectionPart] = [runs_table(cards), differences_table(cards)]
    settings = settings_table(cards)
    return [
        Section("curves", "Curves over each other", (), [norms_figure(cards)]),
        Section("differences", "What differs", (), [*tables, *([settings] if settings else [])]),
        *_exponents(cards),
        *_groups(cards),
    ]


def _exponents(cards: Sequence[RunCard]) -> list[Section]:
    figure = exponents_figure(cards)
    return [Section("exponents", "Exponents of growth", (), [figure])] if figure else []


def _groups(cards: Sequence[RunCard]) -> list[Section]:
    """By layer and by role, for the runs with the same tensors as the first that has any."""
    with_groups = [card for card in cards if card.groups]
    same = [card for card in with_groups if card.tensors == with_groups[0].tensors]
    others = [card.name for card in cards if card not in same]
    if len(same) < 2:
        return []
    step = common_last(same)
    parts: list[SectionPart] = []
    for by in GROUPINGS:
        parts.append(groups_figure(same, by))
        if step is not None:
            parts += [last_norms_figure(same, by, step), groups_table(same, by, step)]
    left_out = f"Left out, because their tensors are others or not known: {joined(others)}." if others else ""
    return [Section("groups", "Layer by layer and role by role", [left_out] if others else [], parts)]


def _summary(cards: Sequence[RunCard]) -> list[str]:
    """Which grew most, and where they are at the last step that all cover."""
    what = unit_of_all(cards)
    growth = [
        (float(card.norms.values[-1] / card.norms.values[0]), card)
        for card in cards
        if card.norms.values[0] > 0
    ]
    sentences = []
    if len(growth) > 1:
        (low, least), (high, most) = min(growth, key=_first), max(growth, key=_first)
        sentences.append(
            f"From first to last point, the {what} grew most in {printable(most.name)}, to "
            f"{number(high, 3)} times its first value, and least in {printable(least.name)}, to "
            f"{number(low, 3)} times."
        )
    laws = {card.fit.best for card in cards if card.fit is not None and card.fit.verdict == "one law"}
    claimed = [card for card in cards if card.fit is not None and card.fit.verdict == "one law"]
    if len(claimed) == len(cards) and len(laws) == 1:
        sentences.append(f"All follow the law {laws.pop()}.")
    elif claimed:
        named = joined([f"{printable(card.name)} ({card.fit.best})" for card in claimed if card.fit])
        sentences.append(f"One law can be claimed for {named}; for the others it cannot.")
    else:
        sentences.append("No law can be claimed for any of them.")
    return sentences


def _first(pair: tuple[float, RunCard]) -> float:
    return pair[0]


def _facts(cards: Sequence[RunCard]) -> list[Fact]:
    """The norm of each run at the last common step; of the first few."""
    step = common_last(cards)
    if step is None:
        return []
    return [
        Fact(
            printable(card.name), number(value_at(card, step)), f"{unit_of_all(cards)} at step {count(step)}"
        )
        for card in cards[:6]
    ]


def _doubts(cards: Sequence[RunCard]) -> Doubts | None:
    """What the scans found wrong, run by run."""
    found = [(card.name, doubts(_unrepeated(card.findings))) for card in cards]
    kept = [(name, each) for name, each in found if each is not None]
    if not kept:
        return None
    return Doubts(
        [f"{printable(name)}: {line}" for name, each in kept for line in each.sure],
        [f"{printable(name)}: {line}" for name, each in kept for line in each.hints],
    )


def _unrepeated(findings: Sequence[Finding]) -> list[Finding]:
    return list(dict.fromkeys(findings))


def warnings(cards: Sequence[RunCard]) -> list[str]:
    """What makes these runs hard to compare, the worst first."""
    found = [
        *_other_units(cards),
        *_other_scopes(cards),
        *_other_sizes(cards),
        *_other_steps(cards),
        *(
            f"{printable(card.name)}: {printable(note).rstrip('.')}."
            for card in cards
            for note in card.norms.notes
        ),
    ]
    return list(dict.fromkeys(found))


def _other_units(cards: Sequence[RunCard]) -> list[str]:
    units = {card.name: card.norms.unit or "values" for card in cards}
    if len(set(units.values())) == 1:
        return []
    return [f"These are not the same quantity, so their heights cannot be compared: {_each(units)}."]


def _other_scopes(cards: Sequence[RunCard]) -> list[str]:
    scopes = {card.name: card.norms.scope for card in cards}
    if len(set(scopes.values())) == 1:
        return [] if scope_of_all(cards) else [f"It is not known which parameters {_unknown(scopes)} counts."]
    words = {name: scope_words(scope) if scope else "not known" for name, scope in scopes.items()}
    return [
        f"The runs do not count the same parameters, so their heights cannot be compared: {_each(words)}."
    ]


def _unknown(scopes: dict[str, str]) -> str:
    return joined([printable(name) for name in scopes])


def _other_sizes(cards: Sequence[RunCard]) -> list[str]:
    sizes = {card.name: card.body for card in cards if card.body}
    if not sizes or max(sizes.values()) <= (1 + ALIKE) * min(sizes.values()):
        return []
    words = {name: f"{size(body)} parameters" for name, body in sizes.items()}
    return [
        f"The models have different sizes ({_each(words)}): a larger one has a larger norm, so compare "
        "ratios and exponents, not heights."
    ]


def _other_steps(cards: Sequence[RunCard]) -> list[str]:
    last = common_last(cards)
    if last is None:
        ends = {card.name: span(card.norms.steps.tolist()) for card in cards}
        return [f"The runs have no step in common: {_each(ends)}."]
    ends = {card.name: f"step {count(int(card.norms.steps[-1]))}" for card in cards}
    if len(set(ends.values())) == 1:
        return []
    return [f"The runs end at different steps ({_each(ends)}); values are compared at step {count(last)}."]


def _each(words: dict[str, str]) -> str:
    return "; ".join(f"{printable(name)}: {text}" for name, text in words.items())
