"""Is there an automaton inside? `ns.automaton` extracts it and compares it with that of the language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal

from torch import nn

from normscope.errors import ModelError, UsageError
from normscope.lab.automata.automaton import Automaton
from normscope.lab.automata.extracted import KINDS, ExtractedAutomaton, Kind, sentence
from normscope.lab.automata.language_automaton import language_automaton, legal_symbols
from normscope.lab.automata.nerode import Quotient, quotient
from normscope.lab.automata.predicted_sets import (
    MOST_STATES,
    NotFinite,
    SetReader,
    distinct_directions,
    visible_blocks,
)
from normscope.lab.automata.string_tree import MOST_STRINGS, StringTree, check_strings, explore
from normscope.lab.data.grammar import Language
from normscope.lab.data.languages import language
from normscope.network.measuring.saturated import saturated
from normscope.network.running.eval_mode import evaluating
from normscope.network.running.scaling import check_scale, power_of_two
from normscope.network.watching.block_lists import BlockList
from normscope.option_checks import check_integer, check_kind, check_progress
from normscope.progress import Progress, silent
from normscope.table import Table, Tabular

LEAST_SCALE = 4.0  # a quarter of it is still the model, or more


@dataclass(frozen=True, repr=False)
class NetworkAutomaton(Tabular):
    """The automata of a language, of a model, and of the model's saturated network.

    `task` names the language; `automata` has a row for the language, the model, and the saturated network
    with scaled and with exact attention, taken at `scale`; `strings` is "legal" or "all".

    >>> import normscope as ns
    >>> from normscope.lab.model import Transformer
    >>> model = Transformer(ns.ModelConfig(vocab_size=3, d_model=16, n_heads=2, d_ff=32))
    >>> found = ns.automaton(model, "ab-star", length=4)
    >>> [row.network for row in found.automata], found["language"].classes
    (['language', 'model', 'scaled', 'exact'], 3)
    """

    task: str
    automata: tuple[ExtractedAutomaton, ...]
    scale: float
    strings: Literal["legal", "all"] = "legal"
    warnings: tuple[str, ...] = ()

    def __getitem__(self, network: Kind) -> ExtractedAutomaton:
        found = {row.network: row for row in self.automata}
        if network not in found:
            raise UsageError(f"network must be one of {', '.join(found)}; got {network!r}")
        return found[network]

    @property
    def table(self) -> Table:
        """One row per network."""
        fields = [name for name in ExtractedAutomaton.__dataclass_fields__ if name != "automaton"]
        names = ["network", "classes", *(name for name in fields if name != "network")]
        return Table.from_rows(names, ([getattr(row, name) for name in names] for row in self.automata))

    @property
    def messages(self) -> Sequence[str]:
        """A sentence about each network, and the warnings."""
        length = self["language"].length
        return (*(sentence(row, self.task, length) for row in self.automata), *self.warnings)


def automaton(
    model: nn.Module,
    task: str,
    *,
    length: int = 10,
    horizon: int | None = None,
    strings: Literal["legal", "all"] = "legal",
    scale: float = 2.0**10,
    progress: Progress = silent,
) -> NetworkAutomaton:
    """The automaton inside a model that was trained on a formal language, and inside its saturated network.

    Every string of up to `length` symbols is given to the `model`, and the symbols with a positive logit are
    what it predicts to be legal after it. Two strings are in one class if the predictions agree after both,
    and after whatever of up to `horizon` symbols is appended to both (Nerode); the horizon is 3 by default,
    or less if length is. The classes are the states of an automaton, which is compared with the smallest one
    of the language, `task`. The same is done for the saturated network at `scale`, a power of two, with
    scaled and with exact attention.

    An automaton is a summary of strings of up to `length` symbols: what the network does with longer ones
    is not known.

    With `strings="legal"`, a network is followed only along symbols that it predicts itself: after any other
    symbol there is nothing it could mean. With "all", it is asked after every string over the
    alphabet, also after those that no word begins with, which it has never seen in training.

    At most 50,000 strings are given to each network. `progress` is called with (done, total, note).

    >>> import normscope as ns
    >>> from normscope.lab.model import Transformer
    >>> model = Transformer(ns.ModelConfig(vocab_size=3, d_model=16, n_heads=2, d_ff=32))
    >>> found = ns.automaton(model, "ab-star", length=4)
    >>> found["language"].automaton.legal, found["model"].prefixes
    (('a', 'b', 'a.'), 5)
    """
    check_progress(progress)
    check_kind("model", model, nn.Module)
    if not power_of_two(scale) >= power_of_two(LEAST_SCALE):
        raise UsageError(f"scale must be a power of two of at least 4, such as 1024; got {scale!r}")
    question = _question(task, length, horizon, strings)
    check_scale(model, scale)
    rows, warnings = [question.language_row()], list(question.remarks())
    with evaluating(model):
        SetReader(model, question.language)([""])  # refuses another vocabulary before its symbols are used
        networks = _Networks(model, visible_blocks(model, question.language), float(scale))
        for done, kind in enumerate(KINDS[1:], 1):
            try:
                rows.append(networks.row(kind, question))
            except NotFinite as error:
                warnings.append(_not_finite(kind, error))
            progress(done, len(KINDS) - 1, f"the automaton of the {kind} network")
    warnings += [text for row in rows for text in _doubts(row, question)]
    return NetworkAutomaton(question.language.name, tuple(rows), float(scale), strings, tuple(warnings))


@dataclass(frozen=True)
class _Question:
    """A language, its strings up to a length with their legal symbols, and its automaton if it is finite."""

    language: Language
    tree: StringTree
    horizon: int
    automaton: Automaton | None

    def language_row(self) -> ExtractedAutomaton:
        """The language's own automaton: the smallest, or, if it is not finite, that of its classes here."""
        found = self.quotient()
        if self.automaton is not None:
            found = Quotient(self.automaton, 0, 0)
        return _row("language", self.tree, self.horizon, found)

    def quotient(self) -> Quotient:
        """The classes that can be told apart at this length and horizon."""
        return quotient(self.tree, self.horizon)

    def remarks(self) -> Iterator[str]:
        """What is to be known about the language."""
        name, length = self.language.name, self.tree.length
        if self.automaton is None:
            yield (
                f"the automaton of {name} is infinite, or too large to be seen in words of up to {length} "
                f"symbols: its classes are those at a horizon of {self.horizon}, and whether a network that "
                "makes no mistake is equivalent is left open"
            )
        elif (seen := len(self.quotient().automaton)) < len(self.automaton):
            yield (
                f"up to length {length}, and at a horizon of {self.horizon}, only {seen} of the "
                f"{len(self.automaton)} classes of {name} are seen: use a larger length or horizon"
            )


def _question(task: str, length: int, horizon: int | None, strings: str) -> _Question:
    check_kind("task", task, str, "the name of a formal language, such as 'ab-star'")
    grammar = language(task)
    length = check_integer("length", length, 1)
    horizon = min(3, length - 1) if horizon is None else check_integer("horizon", horizon, 0, length - 1)
    if strings not in ("legal", "all"):
        raise UsageError(f"strings must be 'legal' or 'all'; got {strings!r}")
    total = strings == "all"
    check_strings(grammar, length, total=total)
    tree = explore(
        lambda level: [legal_symbols(grammar, string) for string in level],
        grammar.alphabet,
        length,
        total=total,
    )
    return _Question(grammar, tree, horizon, language_automaton(grammar, depth=length, total=total))


@dataclass(frozen=True)
class _Networks:
    """The model and its saturated networks, one after the other."""

    model: nn.Module
    blocks: Sequence[BlockList]
    scale: float

    def row(self, kind: Kind, question: _Question) -> ExtractedAutomaton:
        """Extract the automaton of one network, and judge it by the language."""
        known = question.tree
        with self._running(kind, self.scale):
            reader = SetReader(self.model, question.language)
            predicted = reader.all_sets(known.sets)
            tree = explore(reader, known.alphabet, known.length, total=known.total)
            looked_at = [string for string in tree.sets if len(string) <= tree.length - question.horizon]
            states = reader.last_states(looked_at[:MOST_STATES], self.blocks) if self.blocks else None
        row = _row(kind, tree, question.horizon, quotient(tree, min(question.horizon, tree.length - 1)))
        judged = zip(known.sets.items(), predicted, strict=True)
        wrong = [string for (string, legal), found in judged if found != legal]
        row = replace(
            row,
            accuracy=1 - len(wrong) / len(predicted),
            prefixes=len(predicted),
            mistake=wrong[0] if wrong else None,
            unsettled=None if kind == "model" else self._unsettled(kind, tree, question.language),
        )
        if states is not None:
            row = replace(row, directions=distinct_directions(states), states=len(states))
        return _judged(row, question.automaton)

    def _unsettled(self, kind: Kind, tree: StringTree, spoken: Language) -> int:
        """Strings after which the same network at a quarter of the scale predicts another set."""
        with self._running(kind, self.scale / 4):
            nearer = SetReader(self.model, spoken).all_sets(tree.sets)
        return sum(one != two for one, two in zip(nearer, tree.sets.values(), strict=True))

    def _running(self, kind: Kind, scale: float) -> AbstractContextManager[nn.Module]:
        if kind == "model":
            return nullcontext(self.model)
        return saturated(self.model, attention="exact" if kind == "exact" else "scaled", scale=scale)


def _row(kind: Kind, tree: StringTree, horizon: int, found: Quotient) -> ExtractedAutomaton:
    return ExtractedAutomaton(
        kind,
        found.automaton,
        tree.length,
        len(tree.sets),
        min(horizon, tree.length - 1),
        found.inconsistent,
        found.unexplained,
    )


def _judged(row: ExtractedAutomaton, known: Automaton | None) -> ExtractedAutomaton:
    """Compare with the language: a mistake decides; without one, the automata do."""
    if row.mistake is not None:
        return replace(row, equivalent=False, difference=row.mistake)
    if known is None:
        return row
    return replace(
        row, equivalent=row.automaton.equivalent(known), difference=row.automaton.difference(known)
    )


def _doubts(row: ExtractedAutomaton, question: _Question) -> Iterator[str]:
    """What to know before the numbers of one network are believed."""
    if row.length < question.tree.length:
        yield (
            f"the {row.network} network allows more than {MOST_STRINGS:,} strings of up to "
            f"{question.tree.length} symbols, so its classes are those of its strings of up to {row.length}"
        )
    if row.unsettled:
        yield (
            f"after {row.unsettled:,} of {row.strings:,} strings, the {row.network} network predicts other "
            "symbols at a quarter of the scale: its limit is not reached there; use a larger scale"
        )


def _not_finite(kind: Kind, error: NotFinite) -> str:
    """A warning for the saturated network, which then has no row; an error for the model itself."""
    if kind == "model":
        raise ModelError(f"{error}: use a checkpoint from before the run diverged") from None
    return f"the {kind} network has no automaton: {error}; use float64 (model.double()) or a smaller scale"
