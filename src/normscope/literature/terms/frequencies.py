"""In how many documents of a corpus a word or a pair of words is."""

from __future__ import annotations

import gzip
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

CUT = 5  # the bundled table leaves out what is in fewer documents


@dataclass(frozen=True)
class Frequencies:
    """How many `documents` a corpus has, and how many of them contain each word or pair in `counts`.

    `floor` is assumed for what is not in the table, since a table may leave out what is rare.
    """

    documents: int
    counts: Mapping[str, int]
    name: str
    floor: float = 0.0

    def of(self, spellings: Iterable[str]) -> int:
        """The documents that contain the most frequent of these spellings: at least so many have the term."""
        return max((self.counts.get(each, 0) for each in spellings), default=0)

    def rarity(self, documents: int) -> float:
        """The inverse document frequency, log((1 + n) / (1 + documents)): 0 for what is everywhere."""
        return math.log((1 + self.documents) / (1 + max(documents, self.floor)))


@cache
def bundled_frequencies() -> Frequencies:
    """Frequencies in 111,992 abstracts about machine learning and language, in lower case."""
    table = files("normscope.literature").joinpath("data", "term-frequencies.tsv.gz")
    lines = gzip.decompress(table.read_bytes()).decode().splitlines()
    total = int(lines[0].split("\t")[1])
    counts = {term: int(count) for term, count in (line.split("\t") for line in lines[1:])}
    return Frequencies(total, counts, "bundled", floor=CUT / 2)


def counted(documents: Iterable[Iterable[str]], name: str) -> Frequencies:
    """Frequencies in documents that are given by the terms they contain."""
    counts: Counter[str] = Counter()
    total = 0
    for terms in documents:
        counts.update(set(terms))
        total += 1
    return Frequencies(total, counts, name)
