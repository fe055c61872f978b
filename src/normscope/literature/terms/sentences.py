"""Where sentences end, in the prose of papers: not after "e.g.", "et al.", "Fig. 3" or inside 0.5."""

from __future__ import annotations

import re

from normscope.literature.terms.word_sets import word_set

ALWAYS_GO_ON = word_set(
    "e.g i.e cf c.f vs viz fig figs eq eqs sec secs ref refs ch chap no nos vol pp p st ca dr mr mrs ms prof "
    "w.r.t i.i.d a.k.a s.t resp approx thm lem prop def tab"
)
"""Abbreviations that never end a sentence: what follows belongs to them."""
MAY_END = word_set(
    "al etc jr sr inc ltd co corp dept univ u.s u.k ph.d app jan feb mar apr jun jul aug sep sept oct nov dec"
)
"""Abbreviations that end a sentence only if a capital letter follows."""

_END = re.compile(r"([.!?…]+)([\"'”’)\]]*)\s+")


def split_sentences(text: str) -> tuple[str, ...]:
    """The sentences of a text on one line, each as it stands.

    >>> split_sentences("Norms grow, e.g. in T5 (Fig. 3). Merrill et al. show 0.5 % more! Why?")
    ('Norms grow, e.g. in T5 (Fig. 3).', 'Merrill et al. show 0.5 % more!', 'Why?')
    """
    plain = " ".join(text.split())
    found, start = [], 0
    for mark in _END.finditer(plain):
        if _ends(plain[start : mark.start()], mark[1], plain[mark.end() :]):
            found.append(plain[start : mark.end()].strip())
            start = mark.end()
    rest = plain[start:].strip()
    return tuple([*found, rest] if rest else found)


def _ends(before: str, mark: str, after: str) -> bool:
    """Whether a mark ends a sentence, given the text on both sides."""
    opening = after.lstrip("\"'“‘([$")[:1]
    if not opening:
        return True
    if mark != ".":
        return not opening.islower()
    word = re.split(r"[\s(\[\"“]", before)[-1].casefold()
    if word in ALWAYS_GO_ON or (len(word) == 1 and word.isalpha() and before[-1:].isupper()):
        return False  # "Fig. 3"; an initial, as in "N. Smith"
    return opening.isupper() if word in MAY_END else not opening.islower()
