"""Write the results in docs/replication.md: one row per claim, from the results.json of a replication.

python docs/replication_table.py replication/results.json "two cores, commit abc1234"
"""

import sys
from pathlib import Path

from normscope.replication.judging.condition import COLUMNS
from normscope.replication.replication_result import ClaimResult, shown_estimate
from normscope.replication.results_file import read_results
from normscope.replication.trial_costs import shown_time

PAGE = Path(__file__).parent / "replication.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def main() -> None:
    """Replace the part of the page between its two marks."""
    results, where = read_results(Path(sys.argv[1])), sys.argv[2]
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{results_part(results, where)}\n{END}{after}", "utf-8")


def results_part(results: list[ClaimResult], where: str) -> str:
    """The overview and, for each claim, its sentence and its numbers."""
    head = (
        f"Preset {results[0].preset}, {where}; seeds from 0 on, as many as the last column says. "
        "In brackets: 95 % intervals over seeds."
    )
    rows = [
        f"| {r.title} | **{r.verdict}** | {r.labels[r.headline]} "
        f"| {_cells(r, r.headline)} | {r.seeds or '–'} |"
        for r in results
    ]
    overview = [
        "| claim | verdict | number | paper | as released | corrected | seeds |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ]
    return "\n".join([head, "", *overview, "", *(line for r in results for line in _claim(r))])


def _claim(result: ClaimResult) -> list[str]:
    rows = [f"| {label} | {_cells(result, name)} |" for name, label in result.labels.items()]
    time = f"Its experiments took {shown_time(result.seconds)} of one core." if result.seconds > 20 else ""
    return [
        f"### {result.title}",
        "",
        f"*{result.statement}*",
        "",
        f"**{result.verdict}.** {result.because}",
        "",
        *([" ".join(result.otherwise), ""] if result.otherwise else []),
        *([f"About the original: {result.audit}", ""] if result.audit else []),
        "| number | paper | as released | corrected |",
        "|---|---|---|---|",
        *rows,
        "",
        *(f"Note: {note}\n" for note in result.notes),
        f"`{result.command}`. {time}".rstrip(),
        "",
    ]


def _cells(result: ClaimResult, name: str) -> str:
    return " | ".join(shown_estimate(getattr(result, column).get(name)) for column in COLUMNS)


if __name__ == "__main__":
    main()
