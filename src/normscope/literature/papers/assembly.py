"""Found works as one paper: merged, cut to a limit, linked, with key terms and a summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from normscope.literature.identifiers import TITLE, scheme
from normscope.literature.merging import merge
from normscope.literature.papers.corpora import BUNDLED, corpus_named
from normscope.literature.sources.found_works import Found
from normscope.literature.terms.key_terms import key_terms
from normscope.literature.terms.own_summary import summarize_with
from normscope.literature.terms.summary import summarize
from normscope.literature.works import BY_CENTRALITY, Paper, Work


def assemble(found: Found, most: int, corpus: str = BUNDLED, command: str | None = None) -> Paper:
    """Merge and cut what was found, and say what the work is about; the centre is None for a library."""
    merged = merge(found.works())
    by_id = {work.id: work for work in merged.works}
    names = iter(merged.names)  # in the order of found.works()

    def named(works: Sequence[Work], taken: set[str]) -> list[Work]:
        ids = dict.fromkeys(islice(names, len(works)))
        return [by_id[each] for each in ids if each not in taken]

    centre = named(found.centre, set())[0] if found.centre else None
    own = {centre.id} if centre else set()
    references, citations = named(found.references, own), named(found.citations, own)
    further = named(found.further, own | {work.id for work in (*references, *citations)})
    notes = [*found.notes]
    if centre:
        references, citations, further = _cut(references, citations, further, most, notes)
    shown = own | {work.id for work in (*references, *citations, *further)}
    edges = [*_around(centre, references, citations), *_among(found.edges, merged.renamed, shown)]
    frequencies, remark = corpus_named(corpus, [*references, *citations, *further])
    summary, by = _summary(centre, command)
    return Paper(
        work=centre,
        terms=key_terms(_texts([centre] if centre else further), frequencies),
        summary=summary,
        summary_by=by,
        references=tuple(references),
        citations=tuple(citations),
        further=tuple(further),
        edges=tuple(dict.fromkeys(edges)),
        merged=merged.said,
        notes=tuple(dict.fromkeys([*notes, *([remark] if remark else [])])),
    )


def _cut(
    references: list[Work], citations: list[Work], further: list[Work], most: int, notes: list[str]
) -> tuple[list[Work], list[Work], list[Work]]:
    """Keep at most so many works, the nearest first; the newest of the citing works."""
    kept = references[:most]
    room = most - len(kept)
    newest = sorted(citations, key=lambda work: -(work.year or 0))[:room]
    chosen = {work.id for work in newest}
    citing = [work for work in citations if work.id in chosen]
    room -= len({work.id for work in citing} - {work.id for work in kept})
    near = further[: max(0, room)]
    missing = sum(map(len, (references, citations, further))) - sum(map(len, (kept, citing, near)))
    if missing:
        notes.append(f"Works around it that were left out: {missing:,} (--max-works is {most:,}).")
    return kept, citing, near


def _around(centre: Work | None, references: list[Work], citations: list[Work]) -> list[tuple[str, str]]:
    """Citations by the centre and of it."""
    if centre is None:
        return []
    return [(centre.id, work.id) for work in references] + [(work.id, centre.id) for work in citations]


def _among(
    edges: Sequence[tuple[str, str]], renamed: dict[str, str], shown: set[str]
) -> Iterator[tuple[str, str]]:
    """Citations between works that are shown; no work cites itself. A title does not say which work it is."""
    for ends in edges:
        a, b = map(renamed.get, ends)
        if a and b and a != b and {a, b} <= shown and TITLE not in map(scheme, ends):
            yield a, b


def _texts(works: Sequence[Work]) -> list[list[str]]:
    return [[text for text in (work.title, work.abstract) if text] for work in works]


def _summary(centre: Work | None, command: str | None) -> tuple[tuple[str, ...], str]:
    """The summary and who made it; nothing without an abstract."""
    if centre is None or not centre.abstract:
        return (), BY_CENTRALITY
    if command is not None:
        return summarize_with(command, centre.abstract), command
    return summarize(centre.abstract, centre.title), BY_CENTRALITY
