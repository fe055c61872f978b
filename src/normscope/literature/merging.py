"""Works that were found more than once, merged into one: by identifier, then by title and authors."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from normscope.literature.identifiers import ARXIV, PREFERENCE, TITLE, links_for, scheme
from normscope.literature.work_making import UNTITLED
from normscope.literature.works import Work

SHORTEST_TITLE = 3  # words: "Introduction" without authors is many works
_MOST_TRIED = 500  # different works of one title, with which another one is compared


@dataclass(frozen=True)
class Merged:
    """Distinct works, which id each given id has become, and what was merged, in words.

    `names` has, for each given work in turn, the id of the work that it is part of: two works of one title
    without identifiers were given under one id, and are two works.
    """

    works: tuple[Work, ...]
    renamed: dict[str, str]
    said: tuple[str, ...]
    names: tuple[str, ...]


def merge(works: Iterable[Work]) -> Merged:
    """Merge works with an identifier in common, then those with one title and an author in common.

    The first of several works is preferred, field by field; what it lacks is taken from the others.
    """
    given = list(works)
    by_id = _with_common_ids(given)
    unions = [_union(group) for group in by_id]
    by_title = _with_one_title(unions)
    merged, renamed = _named([_union(group) for group in by_title])
    several = [group for group in (*by_id, *by_title) if len(group) > 1]
    twice = [group for group in several if _from_one_source(group)]
    across = len(several) - len(twice)
    summary = [f"Works that several services know, merged: {across:,}."] if across else []
    home = {id(union): work.id for group, work in zip(by_title, merged, strict=True) for union in group}
    names = {id(work): home[id(union)] for group, union in zip(by_id, unions, strict=True) for work in group}
    return Merged(
        merged, renamed, (*map(_sentence, twice), *summary), tuple(names[id(work)] for work in given)
    )


def all_ids(work: Work) -> tuple[str, ...]:
    """Every id of a work, the preferred first."""
    return (work.id, *work.other_ids)


def plain_title(title: str) -> str:
    """A title as it is compared: letters and digits only, without accents and case.

    >>> plain_title("Naïve  Bayes: What's new?") == plain_title("naive bayes — whats new")
    True
    """
    bare = unicodedata.normalize("NFKD", title.casefold())
    return " ".join(re.findall(r"\w+", re.sub(r"[\u0300-\u036f'’`]", "", bare)))


def surname(author: str) -> str:
    """The last name of an author, as it is compared."""
    last = author.partition(",")[0] if "," in author else author.rpartition(" ")[2]
    return plain_title(last) or plain_title(author)


def _with_common_ids(works: list[Work]) -> list[list[Work]]:
    """Groups of works that share an identifier, in the order in which their first works came."""
    first_with: dict[str, int] = {}
    parent = list(range(len(works)))
    for position, work in enumerate(works):
        for each in all_ids(work):
            if scheme(each) != TITLE:
                known, own = (
                    _root(parent, place) for place in (first_with.setdefault(each, position), position)
                )
                parent[max(known, own)] = min(known, own)
    groups: dict[int, list[Work]] = defaultdict(list)
    for position, work in enumerate(works):
        groups[_root(parent, position)].append(work)
    return list(groups.values())


def _root(parent: list[int], place: int) -> int:
    """The first work that a work is known to be the same as; the path to it becomes shorter."""
    while parent[place] != place:
        parent[place] = parent[parent[place]]
        place = parent[place]
    return place


def _with_one_title(works: list[Work]) -> list[list[Work]]:
    """Groups of works that have one title and can be one work."""
    by_title: dict[str, list[_OneTitle]] = defaultdict(list)
    groups: list[_OneTitle] = []
    for work in works:
        title = plain_title(work.title) if work.title != UNTITLED else ""
        own = _OneTitle([work], {surname(author) for author in work.authors}, _arxiv_ids(work))
        tried = by_title[title][:_MOST_TRIED] if title else []
        home = next((group for group in tried if group.can_be(own, title)), None)
        if home is None:
            by_title[title].append(own)
            groups.append(own)
        else:
            home.works.append(work)
            home.names |= own.names
            home.arxiv |= own.arxiv
    return [group.works for group in groups]


@dataclass
class _OneTitle:
    """Works of one title that are taken for one, with the surnames of their authors and their arXiv ids."""

    works: list[Work]
    names: set[str]
    arxiv: set[str]

    def can_be(self, other: _OneTitle, title: str) -> bool:
        """Whether a work of this title is the same: an author in common, and not two arXiv ids."""
        if len(self.arxiv | other.arxiv) > 1:
            return False
        if self.names and other.names:
            return not self.names.isdisjoint(other.names)
        return len(title.split()) >= SHORTEST_TITLE


def _from_one_source(group: Sequence[Work]) -> bool:
    """Whether one source has a work twice, which is worth saying; two sources that agree are not."""
    sources = [source for work in group for source in work.sources]
    return len(set(sources)) < len(sources)


def _arxiv_ids(work: Work) -> set[str]:
    return {each for each in all_ids(work) if scheme(each) == ARXIV}


def _union(group: Sequence[Work]) -> Work:
    """One work with all ids and sources of several, and of each field the first that is known."""
    first = group[0]
    if len(group) == 1:
        return first
    gaps = {
        name: next((value for work in group if (value := getattr(work, name))), getattr(first, name))
        for name in (
            "authors", "year", "venue", "published", "updated", "categories", "licence", "comment",
            "abstract",
        )
    }  # fmt: skip
    gaps["title"] = next((work.title for work in group if work.title != UNTITLED), UNTITLED)
    ids = dict.fromkeys(each for work in group for each in all_ids(work))
    known = [each for each in ids if scheme(each) != TITLE] or [first.id]
    ordered = sorted(known, key=lambda each: PREFERENCE.index(scheme(each)))
    sources = tuple(dict.fromkeys(source for work in group for source in work.sources))
    links = tuple(dict.fromkeys([*links_for(ordered, gaps["title"]), *_own_links(group)]))
    return replace(
        first, **gaps, id=ordered[0], other_ids=(*ordered[1:], *_given_ids(group, ordered)), sources=sources,
        links=links,
    )  # fmt: skip


def _given_ids(group: Sequence[Work], ordered: Sequence[str]) -> list[str]:
    """Title ids that others may still use for an edge."""
    return [work.id for work in group if work.id not in ordered]


def _own_links(group: Sequence[Work]) -> list[tuple[str, str]]:
    """Links that do not follow from identifiers, such as the address in a library."""
    derived = {label for label, _ in links_for(["arxiv:x", "doi:x", "openalex:x", "s2:x"], "")} | {"search"}
    return [link for work in group for link in work.links if link[0] not in derived]


def _named(works: Sequence[Work]) -> tuple[tuple[Work, ...], dict[str, str]]:
    """Give every work an id of its own, since different works can have one title."""
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    renamed: dict[str, str] = {}
    named = []
    for work in works:
        name, number = work.id, numbers.get(work.id, 1)
        while name in taken:
            number += 1
            name = f"{work.id}-{number}"
        numbers[work.id] = number
        taken.add(name)
        for each in all_ids(work):
            renamed.setdefault(each, name)
        named.append(replace(work, id=name, other_ids=tuple(e for e in work.other_ids if scheme(e) != TITLE)))
    return tuple(named), renamed


def _sentence(group: Sequence[Work]) -> str:
    years = [str(work.year) for work in group if work.year]
    shown = f" ({', '.join(years)})" if len(set(years)) > 1 else ""
    times = {2: "twice", 3: "three times"}.get(len(group), f"{len(group)} times")
    return f"“{group[0].title}” was found {times}{shown} and is listed once."
