"""What was measured and what was not: checkpoints, tensors, skipped and unknown names, broken values."""

from __future__ import annotations

from normscope.anatomy import locate
from normscope.run import Run
from normscope.theory.measures.measures import Grouped
from normscope.views.page.formatting import clean, count, drawn, plural
from normscope.views.page.page_parts import Grid, Section
from normscope.words import joined

MOST_ROWS = 400
MOST_NAMES = 200


def by_step(total: Grouped) -> Grid:
    """The measures of the whole model at each step."""
    names = ("norm", "rms", "update", "cosine", "alignment", "radial", "diffusive", "distance")
    tables = [total.measure(name)[:, 0] for name in names]
    kept = drawn(len(total.steps), MOST_ROWS)
    rows = [(int(total.steps[i]), *(float(table[i]) for table in tables)) for i in kept]
    note = (
        ""
        if len(kept) == len(total.steps)
        else f"{len(kept)} of {count(len(total.steps))} steps; normscope export writes all."
    )
    return Grid("norm-by-step", "Every measure by step", ("step", *names), rows, note, folded=True)


def section(run: Run) -> Section:
    """Sentences on what was counted, and the names behind them."""
    tensors, skipped = run.tensors(), run.skipped()
    tied = [tensor for tensor in tensors if tensor.tied_to is not None]
    strange = run.meta.get("unknown_names") or [t.name for t in tensors if not locate(t.name).known]
    said = [_counted(run)]
    if tied:
        said.append(f"Counted once because they share storage with another: {plural(len(tied), 'tensor')}.")
    if skipped:
        said.append(f"Skipped because they are no parameters: {plural(len(skipped), 'name')}.")
    if strange:
        said.append(f"Of no known model family, so of the role “other”: {plural(len(strange), 'name')}.")
    return Section("measured", "What was measured", said, _tables(skipped, strange))


def _counted(run: Run) -> str:
    tensors = [tensor for tensor in run.tensors() if tensor.tied_to is None]
    dtypes = sorted({tensor.dtype for tensor in tensors})
    size = sum(tensor.numel for tensor in tensors)
    points = plural(len(run.checkpoints()), "checkpoint")
    kinds = f", stored as {joined(map(clean, dtypes))}" if dtypes else ""
    return f"{points} of {plural(len(tensors), 'tensor')} with {count(size)} parameters{kinds}."


def _tables(skipped: dict[str, str], strange: list[str]) -> list[Grid]:
    found = []
    if skipped:
        rows = [(clean(name), clean(reason)) for name, reason in list(skipped.items())[:MOST_NAMES]]
        found.append(
            Grid(
                "skipped", f"Skipped ({len(skipped)})", ("name", "reason"), rows, _rest(skipped), folded=True
            )
        )
    if strange:
        names = [(clean(name),) for name in strange[:MOST_NAMES]]
        found.append(
            Grid("unknown", f"Unknown names ({len(strange)})", ("name",), names, _rest(strange), folded=True)
        )
    return found


def _rest(names: dict[str, str] | list[str]) -> str:
    return f"The first {MOST_NAMES} of {count(len(names))}." if len(names) > MOST_NAMES else ""
