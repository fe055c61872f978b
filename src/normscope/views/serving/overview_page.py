"""The overview of a folder: every run in it, their norms in one figure, their alarms first."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from normscope._version import __version__
from normscope.anatomy import of_scope, scope_words
from normscope.table import Value
from normscope.theory.measures.time_series import Series
from normscope.views.figures.lines import axis_title, curve
from normscope.views.page import palette
from normscope.views.page.formatting import label, plural, points_to_draw
from normscope.views.page.page_parts import FigureSpec, Page, Section, Stage, TableSpec, Trace
from normscope.views.serving.run_overview import RunOverview
from normscope.views.serving.served_runs import counted
from normscope.words import printable

MOST_CURVES = 40
MOST_ALARMS = 50
ALARM_COLUMNS = ("run", "step", "severity", "kind", "what was seen")
COLUMNS = ("run", "step", "norm", "counted", "loss", "alarms", "newest alarm, or state")


def overview_page(place: str, found: Sequence[RunOverview], notes: Sequence[str] = ()) -> Page:
    """The page of all runs; those that cannot be read are named with the reason."""
    readable = [each for each in found if not each.problem]
    sections = [*_alarms(readable), *_norms(readable), _table(found)]
    many = counted([each.run for each in found])
    sentence = f"{many} below {place}. Each name opens the page of that run."
    return Page(
        title="Runs",
        subject=printable(place),
        subtitle=many,
        stages=[Stage("", [sentence], [], sections)],
        closing=[],
        provenance={"folder": printable(place), "served by": f"normscope {__version__}"},
        warnings=[
            *notes,
            *(f"{printable(each.run.name)}: {printable(each.problem)}" for each in found if each.problem),
        ],
    )


def _alarms(found: Sequence[RunOverview]) -> list[Section]:
    """The newest alarms of all runs; critical ones first."""
    raised = [(each.run.name, alarm) for each in found for alarm in each.alarms]
    if not raised:
        return []
    raised.sort(key=lambda one: (one[1].get("severity") != "critical", -int(one[1]["step"])))
    rows = [
        (
            printable(name),
            int(alarm["step"]),
            printable(alarm.get("severity", "warning")),
            printable(alarm["kind"]),
            printable(alarm["message"]),
        )
        for name, alarm in raised[:MOST_ALARMS]
    ]
    runs = plural(len({name for name, _ in raised}), "run")
    more = f" The first {MOST_ALARMS} are shown." if len(raised) > MOST_ALARMS else ""
    table = TableSpec("alarms", "Alarms", ALARM_COLUMNS, rows, wrapped=True)
    return [Section("alarms", "Alarms", [f"{plural(len(raised), 'alarm')} in {runs}.{more}"], [table])]


def _norms(found: Sequence[RunOverview]) -> list[Section]:
    curves = [(each, series) for each in found for series in each.norms if len(series)]
    if not curves:
        return []
    several = len({series.scope for _, series in curves}) > 1
    traces = [_curve(each, series, i, several) for i, (each, series) in enumerate(curves[:MOST_CURVES])]
    scope = "" if several else curves[0][1].scope
    note = "The runs do not all count the same parameters; each name says which." if several else ""
    left = len(curves) - len(traces)
    note += f" {left} more are in the table alone." if left > 0 else ""
    layout = {"yaxis": {"title": {"text": axis_title("norm", scope)}}, "showlegend": True}
    title = f"The norm{of_scope(scope)} of every run"
    figure = FigureSpec(
        "norms", title, traces, layout, note.strip(), 460, step_axis=True, log_y=True, wide=True
    )
    return [Section("norms", "Norms", (), [figure])]


def _curve(each: RunOverview, series: Series, index: int, several: bool) -> Trace:
    kept = points_to_draw(len(series))
    part = f", {series.name}" if len(each.norms) > 1 else ""
    scope = f" ({series.scope})" if several and series.scope else ""
    trace = curve(
        series.steps[kept],
        series.values[kept],
        label(f"{each.run.name}{part}{scope}"),
        palette.category(index),
    )
    return trace | {"line": {"color": palette.category(index), "width": 2, "dash": palette.dash(index)}}


def _table(found: Sequence[RunOverview]) -> Section:
    rows = [(printable(each.run.name), *_cells(each)) for each in found]
    links = [page_path(each.run.name) for each in found]
    return Section(
        "runs", "All runs", (), [TableSpec("runs", "The newest values of each", COLUMNS, rows, links=links)]
    )


def page_path(name: str) -> str:
    """Where the page of a run is, seen from the overview."""
    return f"run/{quote(name, safe='')}/"


def _cells(each: RunOverview) -> tuple[Value, ...]:
    last = each.last
    if last is None:
        return (None, None, "", None, len(each.alarms), "cannot be read" if each.problem else each.state)
    loss = (each.scalars or {}).get("loss")
    newest = max(each.alarms, key=lambda alarm: int(alarm["step"]), default=None)
    alarm = f"step {int(newest['step'])}: {printable(newest['kind'])}" if newest else ""
    return (last[0], last[1], scope_words(each.scope), loss, len(each.alarms), alarm)
