"""normscope export: the weight statistics as CSV or Parquet."""

from __future__ import annotations

from pathlib import Path

from normscope.cli.options import JsonFlag, LogColumn, Output, SeriesArgument
from normscope.cli.output import print_file, print_remarks

EXAMPLES = ("normscope export run.db -o weights.csv", "normscope export run.db -o weights.parquet")


def export(
    source: SeriesArgument,
    output: Output = Path("weights.csv"),
    measure: LogColumn = None,
    json: JsonFlag = False,
) -> None:
    """Write the weight statistics to a CSV or Parquet file.

    One row per step and tensor; for a log or a bundled series, its steps and values. The name of the
    file must end in .csv or .parquet.
    """
    from normscope.theory.measures.series_sources import source_findings, source_notes
    from normscope.views.export_file import export as write

    path = write(source, output, measure=measure)
    print_file("output", path, json, findings=source_findings(source))
    print_remarks(source_notes(source, measure), json)
