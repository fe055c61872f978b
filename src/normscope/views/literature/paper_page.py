"""A paper's page: one HTML file with its summary, key terms, claims, network and works."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from normscope._version import __version__
from normscope.literature.works import BY_CENTRALITY, ClaimLine, Paper, Term, Work
from normscope.views.literature.downloads import packed_downloads
from normscope.views.literature.network_graph import NetworkGraph, network_graph
from normscope.views.literature.network_layout import NetworkLayout, network_layout
from normscope.views.literature.readable_text import clean, readable
from normscope.views.literature.safe_links import licence_name, safe_address
from normscope.views.literature.work_rows import WorkRow, refused_links, safe_links, work_rows
from normscope.views.page.offline_file import check_place, embedded, policy, resource, write_html

SCRIPTS = ("network_pens", "network_picture", "network_view", "network_input", "works_table", "paper")
LISTED_TERMS = 20

# How the verdicts of `normscope replicate` are marked; a word that is not here is marked as open.
VERDICT_MARKS = {
    "confirmed": "good",
    "confirmed in part": "partly",
    "not reproduced": "bad",
    "artefact": "bad",
    "not testable at this scale": "open",
}


def write_paper_page(paper: Paper, output: str | os.PathLike[str], *, title: str | None = None) -> Path:
    """Write the page of a paper or of a reading list, completely or not at all.

    `title` names a reading list, usually by its file; a paper has a title of its own.
    """
    check_place(output)
    return write_html(render_paper(paper, title), output)


def render_paper(paper: Paper, title: str | None = None) -> str:
    """The page as HTML, with its style, scripts and data inside."""
    graph = network_graph(paper)
    rows = work_rows(graph)
    scripts = [resource("theme.js"), *(_own(f"{name}.js") for name in SCRIPTS)]
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(_own("paper.html")).render(
        version=__version__,
        style=Markup(resource("style.css") + _own("paper.css")),
        policy=policy(scripts),
        scripts=[Markup(script) for script in scripts],
        network=Markup(embedded(network_data(graph, network_layout(graph), rows))),
        downloads=packed_downloads(graph.works),
        title=_title(paper, title),
        head=_head(paper.work) if paper.work else None,
        facts=_facts(paper, graph),
        summary=[readable(sentence) for sentence in paper.summary],
        summary_note=_summary_note(paper),
        terms=_terms(paper.terms),
        listed_terms=LISTED_TERMS,
        abstract=readable(paper.work.abstract) if paper.work and paper.work.abstract else "",
        claims=[_claim(claim) for claim in paper.claims],
        claims_note=_claims_note(paper.claims),
        rows=rows,
        roles=list(dict.fromkeys((row.role, row.role_word) for row in rows)),
        span=_span(rows),
        notes=_notes(paper, graph, rows),
    )


def network_data(graph: NetworkGraph, layout: NetworkLayout, rows: list[WorkRow]) -> dict[str, Any]:
    """What the script needs beyond the table: positions, sizes, roles, citations, labels."""
    return {
        "radius": [round(radius, 1) for radius in graph.radii],
        "role": list(graph.roles),
        "label": [row.label for row in rows],
        "edges": [end for edge in graph.edges for end in edge],
        "force": [round(value) for point in layout.force for value in point],
        "years": [round(value) for point in layout.years for value in point],
        "ticks": [[label, round(x)] for label, x in layout.ticks],
    }


def _own(name: str) -> str:
    return resource(name, "normscope.views.literature")


def _title(paper: Paper, title: str | None) -> str:
    if paper.work:
        return readable(paper.work.title) or "(no title)"
    return clean(title) if title else "Reading list"


def _head(work: Work) -> dict[str, Any]:
    """Who wrote it, where and when it appeared, where it can be read."""
    licence = clean(work.licence) if work.licence else None
    details = {
        "Published": work.published or work.year,
        "Updated": work.updated,
        "Categories": ", ".join(work.categories),
        "Licence": licence_name(licence) if licence else None,
        "Comment": readable(work.comment) if work.comment else None,
        "Identifier": work.id,
    }
    return {
        "authors": ", ".join(readable(name) for name in work.authors),
        "venue": readable(work.venue or ""),
        "links": safe_links(work),
        "details": {key: clean(str(value)) for key, value in details.items() if value},
        "licence": safe_address(licence),
    }


def _facts(paper: Paper, graph: NetworkGraph) -> list[tuple[str, str]]:
    years = [work.year for work in graph.works if work.year is not None]
    found = [("Works", len(graph.works))] if paper.work is None else [
        ("References", len(paper.references)),
        ("Citing works", len(paper.citations)),
    ]  # fmt: skip
    if paper.work and paper.further:
        found.append(("Further works", len(paper.further)))
    shown = [(label, f"{count:,}") for label, count in found]
    return shown + ([("Years", f"{min(years)}–{max(years)}")] if years else [])


def _summary_note(paper: Paper) -> str:
    if paper.summary_by == BY_CENTRALITY:
        return "Sentences of the abstract, word for word: those that have most in common with the others."
    command = clean(paper.summary_by)
    return f"Written by the command “{command}”, not by the authors; compare it with the abstract."


def _terms(terms: tuple[Term, ...]) -> list[dict[str, Any]]:
    most = max((term.score for term in terms), default=1.0) or 1.0
    return [
        {
            "term": readable(term.term),
            "score": f"{term.score:.3g}",
            "share": round(100 * max(term.score, 0.0) / most),
            "count": f"{term.count:,}",
            "documents": f"{term.documents:,}",
            "forms": ", ".join(readable(form) for form in term.forms),
        }
        for term in terms
    ]


def _claims_note(claims: tuple[ClaimLine, ...]) -> str:
    judged = sum(claim.verdict is not None for claim in claims)
    if not judged:
        return "What the paper claims. Nothing was measured on this machine yet: run “normscope replicate”."
    share = f"{judged} of {len(claims)} claims"
    return f"What the paper claims, and what was measured on this machine for {share}."


def _claim(claim: ClaimLine) -> dict[str, str]:
    return {
        "id": clean(claim.id),
        "sentence": readable(claim.sentence),
        "verdict": clean(claim.verdict) if claim.verdict else "not yet run here",
        "mark": VERDICT_MARKS.get(claim.verdict or "", "open"),
        "command": clean(claim.command),
        "detail": readable(claim.detail) if claim.detail else "",
    }


def _span(rows: list[WorkRow]) -> tuple[int, int] | None:
    years = [row.year for row in rows if row.year is not None]
    return (min(years), max(years)) if years else None


def _notes(paper: Paper, graph: NetworkGraph, rows: list[WorkRow]) -> list[str]:
    """What was merged, what is missing, and what this page leaves out."""
    found = [clean(note) for note in (*paper.notes, *paper.merged)]
    if sources := Counter(source for work in graph.works for source in work.sources):
        counts = ", ".join(f"{clean(name)} {count:,}" for name, count in sources.most_common())
        found.append(f"Works by source, some from several: {counts}.")
    if refused := refused_links(graph, rows):
        found.append(f"Links that are not shown because they are not http or https addresses: {refused:,}.")
    if graph.unplaced:
        found.append(f"Citations to or from works that are not on this page: {graph.unplaced:,}; not drawn.")
    return found
