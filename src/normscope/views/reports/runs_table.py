"""What differs between several runs, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from normscope.anatomy import of_scope
from normscope.errors import SeriesError
from normscope.remarks import sound
from normscope.table import Value
from normscope.theory.laws.compare import GroupDifference, compare
from normscope.theory.run_cards import RunCard
from normscope.views.page.formatting import count, formula, number, plural
from normscope.views.page.page_parts import TableSpec
from normscope.views.reports.runs_figures import scope_of_all, unit_of_all
from normscope.words import by_layer, printable

MOST_SETTINGS = 60


def runs_table(cards: Sequence[RunCard]) -> TableSpec:
    """One row per run; a column that is known of no run is left out."""
    what = f"{unit_of_all(cards)}{of_scope(scope_of_all(cards))}"
    columns: dict[str, list[Value]] = {
        "run": [printable(card.name) for card in cards],
        "parameters": [card.parameters for card in cards],
        "in the body": [card.body for card in cards],
        "steps": [_steps(card) for card in cards],
        f"{what}, first": [float(card.norms.values[0]) for card in cards],
        "last": [float(card.norms.values[-1]) for card in cards],
        "last / first": [_growth(card) for card in cards],
        "exponent": [_exponent(card) for card in cards],
        "law": [_law(card) for card in cards],
        "learning rate": [_ends(card.rates) for card in cards],
        "weight decay": [_ends(card.decay) for card in cards],
        "sound": [_soundness(card) for card in cards],
    }
    kept = {name: cells for name, cells in columns.items() if any(cell is not None for cell in cells)}
    rows = [tuple(row) for row in zip(*kept.values(), strict=True)]
    return TableSpec("runs", "The runs", tuple(kept), rows, _note(), wrapped=True)


def _steps(card: RunCard) -> str:
    """ "0 to 2,000, 21 points"."""
    first, last = (count(int(step)) for step in (card.norms.steps[0], card.norms.steps[-1]))
    return f"{first} to {last}, {plural(len(card.norms), 'point')}"


def _note() -> str:
    return (
        "The exponent is p in a·tᵖ + b with its 95 % interval, and not known where that is wider than p. "
        "A dash: not recorded, or nothing to give."
    )


def _growth(card: RunCard) -> str | None:
    first = float(card.norms.values[0])
    return f"×\N{NO-BREAK SPACE}{number(float(card.norms.values[-1]) / first, 4)}" if first > 0 else None


def _exponent(card: RunCard) -> str | None:
    if card.fit is None or card.fit.exponent is None:
        return None
    found = card.fit.exponent
    if not found.tells:
        return f"not known ({found.low:.{found.digits}f} to {found.high:.{found.digits}f})"
    value, low, high = (f"{end:.{found.digits}f}" for end in (found.value, found.low, found.high))
    return f"{value} ({low} to {high})"


def _law(card: RunCard) -> str:
    """The verdict about the law, in a few words."""
    if card.fit is None:
        return "too few points" if len(card.norms) < 3 else "no fit"
    best = formula(card.fit.law().formula)
    words = {
        "one law": f"{card.fit.best}: {best}",
        "none": f"none holds; closest: {card.fit.best}",
        "several laws": f"{card.fit.best}, among others",
    }
    return words.get(card.fit.verdict, f"{card.fit.best} is closest; too few points")


def _ends(found: tuple[float, float] | None) -> str | None:
    if found is None:
        return None
    low, high = found
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _soundness(card: RunCard) -> str | None:
    if not sound(card.findings):
        return "no"
    return "yes" if card.checked else "not checked"


def settings_table(cards: Sequence[RunCard]) -> TableSpec | None:
    """The settings of runs of the lab that are not the same in all of them."""
    known = [card for card in cards if card.settings]
    names = dict.fromkeys(name for card in known for name in card.settings)
    differing = [name for name in names if len({card.settings.get(name) for card in known}) > 1]
    if not differing:
        return None
    rows = [
        (
            printable(name),
            *(printable(card.settings[name]) if name in card.settings else None for card in known),
        )
        for name in differing[:MOST_SETTINGS]
    ]
    note = f"The first {MOST_SETTINGS} of {count(len(differing))}." if len(differing) > MOST_SETTINGS else ""
    columns = ("setting", *(printable(card.name) for card in known))
    return TableSpec("settings", "Settings that differ", columns, rows, note, wrapped=True)


def differences_table(cards: Sequence[RunCard], seed: int = 0) -> TableSpec:
    """Each run against the first one, over the steps that both cover."""
    first, *others = cards
    rows: list[tuple[Value, ...]] = []
    without = []
    for card in others:
        try:
            found = compare(first.norms, card.norms, seed=seed)
        except SeriesError:
            without.append(printable(card.name))
            continue
        rows.append((printable(card.name), found.last_step, *_difference(found.groups[0])))
    note = (
        "A ratio is the run's value over the first run's at the last step that both cover. “Apart since” is "
        "the first step from which they stay more than 1 % and three times their noise apart. p is that of "
        "equal exponents, not corrected for the number of runs."
    )
    if without:
        note = f"{note} No step in common with the first run: {', '.join(without)}."
    columns = ("run", "at step", "first run", "this run", "ratio", "apart since", "p")
    title = f"Against {printable(first.name)}"
    return TableSpec("against-first", title, columns, rows, note)


def _difference(found: GroupDifference) -> tuple[Value, ...]:
    return found.value_a, found.value_b, found.ratio, found.since, found.p_value


def groups_table(cards: Sequence[RunCard], by: str, step: int) -> TableSpec:
    """The norm of each group in every run at one step."""
    names = by_layer(cards[0].groups[by].groups)
    values = [dict(zip(c.groups[by].groups, c.groups[by].at(step).tolist(), strict=True)) for c in cards]
    rows = [(printable(name), *(each.get(name) for each in values)) for name in names]
    columns = (by, *(printable(card.name) for card in cards))
    return TableSpec(f"{by}-norms", f"Norm of each {by} at step {count(step)}", columns, rows, folded=True)
