"""The page of a replication: every claim with its verdict, its numbers beside the paper's, and its figure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from normscope._version import __version__
from normscope.replication.judging.condition import COLUMNS
from normscope.replication.judging.verdict import VERDICTS
from normscope.replication.replication_result import ClaimResult, Replication, shown_estimate
from normscope.table import Value
from normscope.views.page.formatting import plural
from normscope.views.page.offline_file import check_place
from normscope.views.page.page import write
from normscope.views.page.page_parts import Fact, Page, Section, SectionPart, Stage, TableSpec
from normscope.views.replication.claim_figure import claim_figures

COLUMN_TITLES = ("number", "in the paper", "as released", "corrected")
READING = (
    "Each claim is run twice where the paper's released code was wrong: as released, with its mistakes, and "
    "corrected. Numbers are means over seeds; in brackets are 95 % intervals. The verdict follows from the "
    "numbers by rules that are part of each claim's file."
)
VERDICT_MEANINGS = {
    "confirmed": "the corrected experiment shows what is claimed",
    "confirmed in part": "it shows some of what is claimed, or less of it",
    "not reproduced": "it does not show what is claimed",
    "artefact": "only the released code shows it, because of a mistake",
    "not testable at this scale": "these runs cannot say",
}


def write_replication_page(found: Replication, output: str | Path) -> Path:
    """Write the page of a replication to a file."""
    check_place(output)
    return write(replication_page(found), output)


def replication_page(found: Replication) -> Page:
    """The page: verdicts first, then a section per claim, then one per open question."""
    claims = [result for result in found.claims if result.kind == "claim"]
    questions = [result for result in found.claims if result.kind != "claim"]
    sections = [_overview(claims, questions), *map(_section, [*claims, *questions])]
    return Page(
        title="Do the paper's claims hold?",
        subject="Effects of Parameter Norm Growth During Transformer Training",
        subtitle="Merrill, Ramanujan, Goldberg, Schwartz and Smith, EMNLP 2021, arXiv 2010.09697",
        stages=[Stage("", _summary(claims, questions), _facts(claims or questions), sections)],
        closing=[],
        warnings=_warnings(found.claims),
        provenance={
            "folder": str(found.out),
            "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "normscope": __version__,
            "presets": ", ".join(sorted({result.preset for result in found.claims})),
        },
    )


def _summary(claims: Sequence[ClaimResult], questions: Sequence[ClaimResult]) -> list[str]:
    found = []
    if claims:
        held, partly = _times("confirmed", claims), _times("confirmed in part", claims)
        run, verb = plural(len(claims), "claim"), "holds" if held == 1 else "hold"
        found.append(f"Of {run} that were run, {held} {verb} as stated and {partly} in part.")
    if questions:
        held = _times("confirmed", questions)
        open_ones = plural(len(questions), "question")
        verb = "is" if held == 1 else "are"
        found.append(f"Of {open_ones} that the paper left open, {held} {verb} confirmed.")
    return [*found, READING]


def _times(verdict: str, results: Sequence[ClaimResult]) -> int:
    return sum(result.verdict == verdict for result in results)


def _facts(results: Sequence[ClaimResult]) -> list[Fact]:
    counts = {verdict: _times(verdict, results) for verdict in VERDICTS}
    return [Fact(v, str(count), VERDICT_MEANINGS[v]) for v, count in counts.items() if count]


def _warnings(results: Sequence[ClaimResult]) -> list[str]:
    presets = sorted({result.preset for result in results})
    small = [p for p in presets if p != "full"]
    found = []
    if small:
        found.append(
            f"Preset {' and '.join(small)}: networks much smaller than the paper's, trained for fewer steps. "
            "A verdict here is about these networks; the preset full has the paper's size."
        )
    return found


def _overview(claims: Sequence[ClaimResult], questions: Sequence[ClaimResult]) -> Section:
    tables = [
        _overview_table(key, title, results)
        for key, title, results in (
            ("claims", "The paper's claims", claims),
            ("questions", "Questions it left open, as seen in one trial", questions),
        )
        if results
    ]
    return Section("verdicts", "Verdicts", (), tables)


def _overview_table(key: str, title: str, results: Sequence[ClaimResult]) -> TableSpec:
    names = ("claim", "verdict", *COLUMN_TITLES, "seeds")
    rows: list[tuple[Value, ...]] = [
        (
            result.title,
            result.verdict,
            result.labels[result.headline],
            *(shown_estimate(getattr(result, column).get(result.headline)) for column in COLUMNS),
            result.seeds or None,
        )
        for result in results
    ]
    return TableSpec(key, title, names, rows, wrapped=True)


def _section(result: ClaimResult) -> Section:
    parts: list[SectionPart] = [*claim_figures(result), _numbers(result)]
    audit = [f"About the original: {result.audit}"] if result.audit and result.kind == "claim" else []
    sentences = [
        f"{'Claim' if result.kind == 'claim' else 'Question'} ({result.place}): {result.statement}",
        result.because,
        *audit,
        *result.otherwise,
        *(f"Note: {note}" for note in result.notes),
    ]
    return Section(
        result.id,
        result.title,
        sentences,
        parts,
        note=_conditions(result),
        badge=result.verdict,
        command=result.command,
        short=result.id.replace("-", " "),
    )


def _conditions(result: ClaimResult) -> str:
    parts = [f"As released: {result.conditions['released']}."] if result.conditions.get("released") else []
    if result.conditions.get("corrected"):
        parts.append(f"Corrected: {result.conditions['corrected']}.")
    return " ".join(parts)


def _numbers(result: ClaimResult) -> TableSpec:
    rows = [
        (label, *(shown_estimate(getattr(result, column).get(name)) for column in COLUMNS))
        for name, label in result.labels.items()
    ]
    seeds = f"{plural(result.seeds, 'seed')}, " if result.seeds else ""
    shown = f"{seeds}preset {result.preset}"
    return TableSpec(f"{result.id}-numbers", f"Numbers ({shown})", COLUMN_TITLES, rows, wrapped=True)
