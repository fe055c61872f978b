"""An extractive summary: the two or three sentences of an abstract that are most central to it.

Biased LexRank (Otterbacher, Erkan and Radev, 2009): sentences are vectors of TF-IDF weights, linked by the
cosine between them; a random walk follows the links, and now and then jumps to a sentence that resembles
the title. Central sentences are visited more often. Nothing is rephrased.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from normscope.literature.latex_text import plain_text
from normscope.literature.terms.acronyms import expand, expansions
from normscope.literature.terms.frequencies import Frequencies, bundled_frequencies
from normscope.literature.terms.sentences import split_sentences
from normscope.literature.terms.term_counts import term_keys

JUMP = 0.5  # how often the walk jumps; most of the words of a title are what its abstract is about
STEPS = 60  # of the walk; halving at each step, what is left of the start is below 1e-15
LONG = 6  # sentences from which three are taken instead of two

Vector = dict[str, float]


def summarize(abstract: str, title: str = "", corpus: Frequencies | None = None) -> tuple[str, ...]:
    """Two sentences of an abstract, three of a long one, in their order; a short one is its own summary.

    >>> summarize("Norms grow. Norms of transformers grow with training. It rained.")
    ('Norms grow.', 'Norms of transformers grow with training.')
    """
    sentences = split_sentences(plain_text(abstract))
    wanted = 3 if len(sentences) >= LONG else 2
    if len(sentences) <= wanted:
        return sentences
    heading, *vectors = _vectors([title, *sentences], corpus or bundled_frequencies())
    weights = centrality(vectors, [_cosine(heading, each) for each in vectors])
    best = sorted(range(len(sentences)), key=lambda i: (-weights[i], i))[:wanted]
    return tuple(sentences[i] for i in sorted(best))


def centrality(vectors: Sequence[Vector], bias: Sequence[float]) -> list[float]:
    """How often a random walk over similar sentences visits each; the weights add up to 1.

    `bias` says how often it jumps to each sentence, in any unit; to all alike if it is 0 everywhere.
    """
    n = len(vectors)
    links = [[_cosine(a, b) if i != j else 0.0 for j, b in enumerate(vectors)] for i, a in enumerate(vectors)]
    totals = [sum(row) for row in links]
    jumps = [each / sum(bias) for each in bias] if any(bias) else [1 / n] * n
    weights = jumps
    for _ in range(STEPS):
        stranded = sum(weight for weight, total in zip(weights, totals, strict=True) if not total)
        weights = [
            (JUMP + (1 - JUMP) * stranded) * jumps[j]
            + (1 - JUMP) * sum(weights[i] * links[i][j] / totals[i] for i in range(n) if totals[i])
            for j in range(n)
        ]
    return weights


def _vectors(texts: Sequence[str], corpus: Frequencies) -> list[Vector]:
    """The weights of the terms of each text; acronyms count as what any of the texts says they stand for."""
    short = expansions(" ".join(texts))
    return [_vector(expand(text, short), corpus) for text in texts]


def _vector(sentence: str, corpus: Frequencies) -> Vector:
    counts = Counter(term_keys(sentence))
    return {key: count * corpus.rarity(corpus.of({key, f"{key}s"})) for key, count in counts.items()}


def _cosine(a: Vector, b: Vector) -> float:
    product = sum(weight * b[key] for key, weight in a.items() if key in b)
    length = math.sqrt(sum(w * w for w in a.values()) * sum(w * w for w in b.values()))
    return product / length if length else 0.0
