"""Key terms of a text by TF-IDF over words and pairs of words.

The score of a term is its count in the text times log((1 + n) / (1 + documents)), where n is the number of
documents of the corpus and `documents` how many of them contain the term. A pair or a hyphenated word
counts one and a half times: it says more than a word that occurs as often. All scores of a text are then
divided by the root of the sum of their squares, so that they lie between 0 and 1.

scikit-learn's TfidfVectorizer computes the same sums, but knows neither plurals nor acronyms nor which
pairs are terms, and would load SciPy and NumPy for one short text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from normscope.literature.terms.frequencies import Frequencies, bundled_frequencies
from normscope.literature.terms.term_counts import TermCount, candidates
from normscope.literature.works import Term

MOST = 60  # terms that are kept
COMPOUND = 1.5
"""What a pair or a hyphenated word counts, beside a single word."""


def key_terms(
    documents: Sequence[Sequence[str]], corpus: Frequencies | None = None, most: int = MOST
) -> tuple[Term, ...]:
    """The terms that set documents apart from a corpus, best first; a document is title and abstract."""
    corpus = corpus or bundled_frequencies()
    found = candidates(documents)
    spread = {key: corpus.of(each.lookups(key)) for key, each in found.items()}
    weights = {key: _size(each) * each.count * corpus.rarity(spread[key]) for key, each in found.items()}
    length = math.sqrt(sum(weight * weight for weight in weights.values()))
    ranked = sorted(weights, key=lambda key: (-weights[key], key))
    return tuple(
        _term(found[key], weights[key] / length, spread[key]) for key in ranked[:most] if weights[key] > 0
    )


def _size(candidate: TermCount) -> float:
    return COMPOUND if any(" " in each or "-" in each for each in candidate.spellings) else 1.0


def _term(candidate: TermCount, score: float, documents: int) -> Term:
    spellings = candidate.spellings
    shown = max(spellings, key=lambda each: (spellings[each], not each.islower(), -len(each), each))
    forms = [shown, *sorted(set(spellings) - {shown}), *([candidate.acronym] if candidate.acronym else [])]
    return Term(shown, score, candidate.count, documents, tuple(forms))
