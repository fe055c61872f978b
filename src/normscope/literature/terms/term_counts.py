"""The words and pairs of words of a text that can be key terms, counted."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from normscope.literature.latex_text import plain_text
from normscope.literature.terms.acronyms import expand, expansions
from normscope.literature.terms.frequencies import bundled_frequencies
from normscope.literature.terms.stop_words import is_stop_phrase
from normscope.literature.terms.tokens import Run, Token, runs
from normscope.literature.terms.word_forms import word_key

OVERSHADOWED = 0.1  # of the frequency of a pair that shares a word with it


@dataclass
class TermCount:
    """A term while it is counted: how often each spelling occurs, and which acronym stands for it."""

    spellings: Counter[str] = field(default_factory=Counter)
    acronym: str | None = None

    @property
    def count(self) -> int:
        """How often the term occurs, in any spelling."""
        return self.spellings.total()

    def lookups(self, key: str) -> set[str]:
        """Spellings under which a table of frequencies may have the term: singular, plural, acronym."""
        found = {key, f"{key}s"}
        for spelling in self.spellings:
            lower = spelling.lower()
            found |= {lower, f"{lower}s", re.sub(r"s$", "", lower)}
        return found | ({self.acronym.lower(), f"{self.acronym.lower()}s"} if self.acronym else set())


def candidates(documents: Sequence[Sequence[str]]) -> dict[str, TermCount]:
    """Count every word and pair that can be a term, by key; not a word that only one pair contains.

    A document is its parts, such as title and abstract; an acronym means what its own document says.
    """
    tally = _Tally()
    for parts in documents:
        tally.add(parts)
    kept = {key: pair for key, pair in tally.pairs.items() if tally.is_term(key, pair)}
    alone = {key: word for key, word in tally.words.items() if not tally.always_inside(key, kept)}
    for key in alone.keys() & kept.keys():  # "self-attention" in one place, "self attention" in another
        kept[key].spellings += alone[key].spellings
    return alone | kept


@dataclass
class _Tally:
    """Words and pairs while they are counted: which pairs a word is in, and which pairs share a word."""

    words: dict[str, TermCount] = field(default_factory=lambda: defaultdict(TermCount))
    pairs: dict[str, TermCount] = field(default_factory=lambda: defaultdict(TermCount))
    inside: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    beside: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, parts: Sequence[str]) -> None:
        """Count the words and pairs of a document."""
        acronyms = _acronyms(parts)
        for run in _all_runs(parts, acronyms):
            for token in run:
                if token.alone:
                    (self.pairs if token.fused else self.words)[token.key].spellings[token.shown] += 1
            before = None
            for a, b in pairwise(run):
                before = self._add_pair(a, b, before)
        for acronym, (_, keys) in acronyms.items():
            self.pairs[" ".join(keys)].acronym = acronym

    def _add_pair(self, a: Token, b: Token, before: str | None) -> str | None:
        """Count a pair, and note the pair before it that it shares a word with."""
        if not _makes_pair(a, b):
            return None
        key, shown = _pair(a, b)
        self.pairs[key].spellings[shown] += 1
        for part in {a.key, b.key}:
            self.inside[part][key] += 1
        if before:
            self.beside[key].add(before)
            self.beside[before].add(key)
        return key

    def is_term(self, key: str, pair: TermCount) -> bool:
        """Whether a pair is more than two words that happened to meet."""
        if not pair.count or is_stop_phrase(key):
            return False
        if pair.acronym or pair.count > 1:
            return True
        documents = _documents(key, pair)
        rivals = (_documents(each, self.pairs[each]) for each in self.beside[key])
        return documents > 0 and all(documents >= OVERSHADOWED * each for each in rivals)

    def always_inside(self, key: str, kept: Mapping[str, TermCount]) -> bool:
        """Whether one pair contains a word every time it occurs."""
        count = self.words[key].count
        return any(times >= count for pair, times in self.inside[key].items() if pair in kept)


def term_keys(text: str) -> Iterator[str]:
    """The keys of all words and pairs of a document, for a corpus of one's own."""
    for run in _all_runs([text], _acronyms([text])):
        yield from (token.key for token in run if token.alone)
        yield from (_pair(a, b)[0] for a, b in pairwise(run) if _makes_pair(a, b))


def _acronyms(texts: Sequence[str]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Each acronym with its expansion, as spelled and as keys."""
    found = {short: words for text in texts for short, words in expansions(plain_text(text)).items()}
    return {
        short: (
            words,
            tuple(word_key(word, _known) for word in re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", words)),
        )
        for short, words in found.items()
    }


def _all_runs(texts: Sequence[str], acronyms: Mapping[str, tuple[str, tuple[str, ...]]]) -> Iterator[Run]:
    spelled = {short: words for short, (words, _) in acronyms.items()}
    phrases = [keys for _, keys in acronyms.values()]
    for text in texts:
        yield from runs(expand(plain_text(text), spelled), _known, phrases)


def _known(word: str) -> int:
    return bundled_frequencies().counts.get(word, 0)


def _makes_pair(a: Token, b: Token) -> bool:
    return a.part and b.part and (a.alone or b.alone) and not a.fused and not b.fused


def _pair(a: Token, b: Token) -> tuple[str, str]:
    """The key of a pair and how it is shown: with a hyphen if the pair is usually spelled so."""
    spaced, hyphenated = (f"{a.shown}{mark}{b.shown}" for mark in " -")
    if _known(hyphenated.lower()) > _known(spaced.lower()):
        return word_key(hyphenated, _known), hyphenated
    return f"{a.key} {b.key}", spaced


def _documents(key: str, candidate: TermCount) -> int:
    return bundled_frequencies().of(candidate.lookups(key))
