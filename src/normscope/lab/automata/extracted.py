"""One automaton that was extracted, with what is known of it and the sentence that says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from normscope.lab.automata.automaton import Automaton

Kind = Literal["language", "model", "scaled", "exact"]
"""The language itself, the model as it is, or the saturated network with scaled or exact attention."""
KINDS: tuple[Kind, ...] = ("language", "model", "scaled", "exact")
NAMES: dict[Kind, str] = {
    "language": "the language",
    "model": "the model",
    "scaled": "the saturated network",
    "exact": "the saturated network with exact attention",
}


@dataclass(frozen=True)
class ExtractedAutomaton:
    """The automaton of one network, and how well it stands for the network and for the language.

    `network` is language, model, scaled or exact. The states of `automaton` are the Nerode classes, at
    `horizon`, of the strings that the network itself allows (or of all): `strings` of up to `length` symbols.
    `inconsistent` counts moves that lead different strings of one class into different classes;
    `unexplained` counts strings after which the automaton does not predict what the network does.

    `accuracy` is the share of the language's own `prefixes` after which the network predicts exactly the
    legal symbols; `mistake` is the shortest one where it does not. `equivalent` says whether the automaton
    is that of the language; `difference` is the shortest string that shows that it is not. None: not known.

    `unsettled` counts strings with another set at a quarter of the scale, where the limit was not reached.
    `directions` is how many directions the states of the last layer have after `states` of the strings,
    up to a difference of 0.001 in cosine.

    >>> always = ns.Automaton("a", legal=["a."], moves=[[0]])
    >>> ns.ExtractedAutomaton("model", always, length=4, strings=5, horizon=2).classes
    1
    """

    network: Kind
    automaton: Automaton
    length: int
    strings: int
    horizon: int
    inconsistent: int = 0
    unexplained: int = 0
    equivalent: bool | None = None
    difference: str | None = None
    accuracy: float | None = None
    prefixes: int | None = None
    mistake: str | None = None
    unsettled: int | None = None
    directions: int | None = None
    states: int | None = None

    @property
    def classes(self) -> int:
        """The number of Nerode classes."""
        return len(self.automaton)


def sentence(row: ExtractedAutomaton, task: str, length: int) -> str:
    """Say how many classes a network has, whether it is the language, and what its automaton leaves out.

    `length` is that of the longest strings it was judged by.
    """
    classes = "one class" if row.classes == 1 else f"{row.classes} classes"
    parts = [f"{NAMES[row.network]} has {classes} of strings", _verdict(row, task)]
    if row.accuracy is not None and row.prefixes is not None:
        right = "all" if row.accuracy == 1 else f"{round(row.accuracy * row.prefixes):,} of"
        parts.append(f"it is right after {right} {row.prefixes:,} prefixes of up to {length} symbols")
    if row.inconsistent:
        moves = "one move" if row.inconsistent == 1 else f"{row.inconsistent} moves"
        parts.append(f"its classes do not decide {moves}")
    if row.unexplained:
        parts.append(
            f"its automaton predicts something else, or nothing, after {row.unexplained:,} of "
            f"{row.strings:,} strings"
        )
    text = "; ".join(part for part in parts if part)
    return text[0].upper() + text[1:]


def place(string: str) -> str:
    """Name a string in a sentence."""
    return f"after {string!r}" if string else "at the start"


def _verdict(row: ExtractedAutomaton, task: str) -> str:
    if row.network == "language":
        return ""
    if row.mistake is not None:
        return f"it is not {task}: its first mistake is {place(row.mistake)}"
    if row.difference is not None:
        return (
            f"it makes no mistake, but its automaton is not that of {task}: they differ "
            f"{place(row.difference)}"
        )
    if row.equivalent:
        return f"its automaton is that of {task}"
    return f"it makes no mistake; whether its automaton is that of {task} is open"
