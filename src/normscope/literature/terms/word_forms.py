"""Spellings of one word: singular and plural, with and without hyphen."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

from normscope.literature.terms.word_sets import word_set

Known = Callable[[str], int]
"""In how many documents a spelling is; 0 if it is not known."""

IRREGULAR = {
    "analyses": "analysis", "automata": "automaton", "axes": "axis", "bases": "basis", "biases": "bias",
    "children": "child", "corpora": "corpus", "criteria": "criterion", "crises": "crisis",
    "diagnoses": "diagnosis", "formulae": "formula", "genera": "genus", "hypotheses": "hypothesis",
    "indices": "index", "lemmata": "lemma", "lives": "life", "matrices": "matrix", "maxima": "maximum",
    "media": "medium", "men": "man", "mice": "mouse", "minima": "minimum", "optima": "optimum",
    "phenomena": "phenomenon", "quanta": "quantum", "radii": "radius", "schemata": "schema",
    "simplices": "simplex", "spectra": "spectrum", "stimuli": "stimulus", "syntheses": "synthesis",
    "theses": "thesis", "vertices": "vertex", "women": "woman", "leaves": "leaf", "halves": "half",
    "bacteria": "bacterium", "nuclei": "nucleus", "loci": "locus",
}  # fmt: skip
NO_PLURALS = word_set(
    "always bayes bias canvas chaos corps gas kudos lens news series species pancreas atlas alias alps aids "
    "sars las pos laos texas kansas diabetes thales mars paris james"
)
_KEPT_ENDINGS = ("ss", "us", "is", "ics", "'s")


def word_key(word: str, known: Known) -> str:
    """What all spellings of a word have in common: lower case, singular, no hyphens.

    >>> [word_key(word, lambda word: 0) for word in ("Networks", "biases", "pre-training", "ℓ2", "analysis")]
    ['network', 'bias', 'pretraining', 'l2', 'analysis']
    """
    plain = unicodedata.normalize("NFKC", word).casefold().replace("’", "'").removesuffix("'s")
    return singular(plain, known).replace("-", "")


def singular(word: str, known: Known) -> str:
    """The singular of a word in lower case, if it is a plural; `known` decides where rules do not."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    head, dash, last = word.rpartition("-")
    if dash and last in IRREGULAR:
        return f"{head}-{IRREGULAR[last]}"
    if len(word) < 4 or not word.endswith("s") or word.endswith(_KEPT_ENDINGS) or word in NO_PLURALS:
        return word
    candidates = _candidates(word)
    return max(candidates, key=lambda each: (known(each), -candidates.index(each)))


def _candidates(word: str) -> list[str]:
    """Possible singulars, the likeliest by the rules of spelling first."""
    if word.endswith("ies") and len(word) > 4:
        return [word[:-3] + "y", word[:-1]]
    if word.endswith(("sses", "xes", "zes", "ches", "shes")):
        return [word[:-2], word[:-1]]
    return [word[:-1]]
