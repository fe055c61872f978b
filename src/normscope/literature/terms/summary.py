"""An extractive summary: the two or three sentences of an abstract that have most in common with the others.

LexRank (Erkan and Radev, 2004): sentences are vectors of TF-IDF weights, linked by the cosine between them; a
random walk that follows the links visits central sentences more often. Nothing is rephrased.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from normscope.literature.latex_text import plain_text
from normscope.literature.terms.candidates import term_keys
from normscope.literature.terms.frequencies import Frequencies, bundled_frequencies
from normscope.literature.terms.sentences import split_sentences

JUMP = 0.15  # how often the walk jumps to any sentence, so that it ends nowhere
STEPS = 100  # of the walk; the weights no longer change in the 6th digit long before
LONG = 6  # sentences from which three are taken instead of two

Vector = dict[str, float]


def summarize(abstract: str, corpus: Frequencies | None = None) -> tuple[str, ...]:
    """Two sentences of an abstract, three of a long one, in their order; a short one is its own summary.

    >>> summarize("Norms grow. Norms of transformers grow with training. It rained.")
    ('Norms grow.', 'Norms of transformers grow with training.')
    """
    sentences = split_sentences(plain_text(abstract))
    wanted = 3 if len(sentences) >= LONG else 2
    weights = centrality([_vector(each, corpus or bundled_frequencies()) for each in sentences])
    best = sorted(range(len(sentences)), key=lambda i: (-weights[i], i))[:wanted]
    return tuple(sentences[i] for i in sorted(best))


def centrality(vectors: Sequence[Vector]) -> list[float]:
    """How often a random walk over similar sentences visits each; the weights add up to 1."""
    n = len(vectors)
    links = [[_cosine(a, b) if i != j else 0.0 for j, b in enumerate(vectors)] for i, a in enumerate(vectors)]
    totals = [sum(row) for row in links]
    weights = [1 / n] * n
    for _ in range(STEPS):
        stranded = sum(weight for weight, total in zip(weights, totals, strict=True) if not total) / n
        weights = [
            JUMP / n
            + (1 - JUMP) * (stranded + sum(weights[i] * links[i][j] / totals[i] for i in range(n) if totals[i]))
            for j in range(n)
        ]
    return weights


def _vector(sentence: str, corpus: Frequencies) -> Vector:
    counts = Counter(term_keys(sentence))
    return {key: count * corpus.rarity(corpus.of({key, f"{key}s"})) for key, count in counts.items()}


def _cosine(a: Vector, b: Vector) -> float:
    product = sum(weight * b[key] for key, weight in a.items() if key in b)
    length = math.sqrt(sum(w * w for w in a.values()) * sum(w * w for w in b.values()))
    return product / length if length else 0.0
