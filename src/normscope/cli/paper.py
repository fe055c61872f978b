"""normscope paper: what a paper is about, what it cites, who cites it, and whether its claims hold."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normscope.cli.option_groups import gathers
from normscope.cli.options import JsonFlag
from normscope.cli.output import console, print_file, print_json, print_notes, print_table, progress_bar
from normscope.cli.paper_options import Export, Page, PaperArgument, Results, network, reading
from normscope.errors import UsageError
from normscope.words import printable

if TYPE_CHECKING:
    from normscope.literature.works import ClaimLine, Paper

EXAMPLES = (
    "normscope paper 2010.09697 -o paper.html",
    "normscope paper 2305.13673 --depth 2 --export works.bib",
    "normscope paper refs.bib -o reading-list.html",
    "normscope paper 10.1162/tacl_a_00306 --summarize 'llm -m MODEL'",
)

SHOWN_TERMS = 12
RESULTS = Path("replication", "results.json")


@gathers(text=reading, around=network)
def paper(
    source: PaperArgument,
    text: dict[str, Any],
    around: dict[str, Any],
    output: Page = None,
    export: Export = None,
    results: Results = None,
    json: JsonFlag = False,
) -> None:
    """Show a paper: summary, key terms, works around it, claims.

    2010.09697 is bundled and opens offline; other papers are asked of arXiv, OpenAlex and Semantic Scholar,
    and answers are kept. A library of papers becomes one network.
    """
    from normscope.literature.papers.paper import paper as look_up

    if export:
        from normscope.literature.libraries.library_files import check_writable

        check_writable(export)
        _check_distinct(source, output, export)
    if output:
        from normscope.views.page.offline_file import check_place

        check_place(output)
    with progress_bar("reading") as progress:
        found = look_up(source, **text, **around, progress=progress)
    found = replace(found, claims=_claims(found, results))
    written = _write(found, Path(source).name, output, export)
    if json:
        print_json(found.to_dict() | {name: written.get(name) for name in ("output", "export")})
    else:
        _print(found)
        for name, path in written.items():
            print_file(name, path, json)


def _check_distinct(source: str, output: Path | None, export: Path) -> None:
    """Refuse an export that would replace the library that is read, or the page."""
    if export.resolve() == Path(source).resolve() and export.exists():
        raise UsageError(f"--export would replace the library {export}; give another name")
    if output and output.resolve() == export.resolve():
        raise UsageError(f"--output and --export must be two files; got {export} for both")


def _claims(found: Paper, results: Path | None) -> tuple[ClaimLine, ...]:
    """What is known about the claims of a paper, with verdicts from a file of results if there is one."""
    from normscope.literature.works import ClaimLine
    from normscope.replication.claim_lines import claim_lines

    if results is not None and not results.is_file():
        raise UsageError(f"--results: {results} does not exist; 'normscope replicate' writes such a file")
    given = results or (RESULTS if RESULTS.is_file() else None)
    ids = (found.work.id, *found.work.other_ids) if found.work else ()
    lines = [line for each in ids for line in claim_lines(each, given)]
    if results is not None and not lines:
        raise UsageError("--results has no effect: no claims of this paper are known; leave it out")
    return tuple(ClaimLine(line.id, line.sentence, line.verdict, line.command, line.detail) for line in lines)


def _write(found: Paper, name: str, output: Path | None, export: Path | None) -> dict[str, Path]:
    """Write the page and the works, as asked; return what is where. A reading list has `name` for a title."""
    written = {}
    if output:
        from normscope.views.literature.paper_page import write_paper_page

        written["output"] = write_paper_page(found, output, title=None if found.work else name)
    if export:
        from normscope.literature.libraries.library_files import write_library

        written["export"] = write_library(found.works, export)
    return written


def _print(found: Paper) -> None:
    say = console().print
    if found.work:
        facts = [", ".join(found.work.authors), str(found.work.year or ""), found.work.venue or ""]
        say(printable(found.work.title), style="bold", markup=False)
        say(printable(" · ".join(fact for fact in facts if fact)), markup=False)
        say(printable("  ".join(address for _, address in found.work.links)), markup=False)
    if found.summary:
        say()
        for sentence in found.summary:
            say(printable(sentence), markup=False)
        say(f"(summary by {printable(found.summary_by)})", style="dim", markup=False)
    say()
    rows = [(term.term, f"{term.score:.3f}", term.count) for term in found.terms[:SHOWN_TERMS]]
    print_table(("key term", "tf-idf", "count"), rows)
    say(f"\n{_counts(found)}")
    _print_claims(found.claims)
    print_notes([*found.merged, *found.notes])


def _print_claims(claims: Sequence[ClaimLine]) -> None:
    """Print the claims that were tested here with their verdicts, and how many were not."""
    tested = [claim for claim in claims if claim.verdict]
    if tested:
        print_table(("claim", "verdict"), [(claim.id, claim.verdict) for claim in tested])
    if len(claims) > len(tested):
        others = "other " if tested else ""
        untested = _several(claims[len(tested) :], f"{others}claim")
        console().print(f"{untested} not yet run here: normscope replicate", markup=False)


def _counts(found: Paper) -> str:
    if not found.work:
        return f"{_several(found.further, 'work')}, {_several(found.edges, 'citation')} among them"
    further = f", {len(found.further):,} further away" if found.further else ""
    return f"{_several(found.references, 'reference')}, {_several(found.citations, 'citing work')}{further}"


def _several(things: Sized, name: str) -> str:
    return f"{len(things):,} {name}{'' if len(things) == 1 else 's'}"
