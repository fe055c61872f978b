"""What was measured and what was not: checkpoints, tensors, skipped and unknown names."""

from __future__ import annotations

from normscope.anatomy import locate
from normscope.run import Run
from normscope.theory.measures.measures import Grouped
from normscope.views.page.formatting import count, plural, points_to_draw
from normscope.views.page.page_parts import Section, TableSpec
from normscope.words import joined, printable

MOST_STEPS_SHOWN = 400
MOST_NAMES = 200


def by_step(total: Grouped) -> TableSpec:
    """The measures of the whole model at each step."""
    names = ("norm", "rms", "update", "cosine", "alignment", "radial", "diffusive", "distance")
    tables = [total.measure(name)[:, 0] for name in names]
    kept = points_to_draw(len(total.steps), MOST_STEPS_SHOWN)
    rows = [(int(total.steps[i]), *(float(table[i]) for table in tables)) for i in kept]
    note = (
        ""
        if len(kept) == len(total.steps)
        else f"{len(kept)} of {count(len(total.steps))} steps; normscope export writes all."
    )
    return TableSpec("norm-by-step", "Every measure by step", ("step", *names), rows, note, folded=True)


def section(run: Run) -> Section:
    """How much was measured, and the names that were left out or not recognised."""
    tensors, skipped = run.tensors(), run.skipped()
    tied = [tensor for tensor in tensors if tensor.tied_to is not None]
    unknown = run.meta.get("unknown_names") or [t.name for t in tensors if not locate(t.name).known]
    sentences = [_counted(run)]
    if tied:
        sentences.append(f"Counted once, because they share storage: {plural(len(tied), 'tensor')}.")
    if skipped:
        sentences.append(f"Skipped, because they are not parameters: {plural(len(skipped), 'name')}.")
    if unknown:
        names = plural(len(unknown), "name")
        sentences.append(f"Not known from any model family, so given the role “other”: {names}.")
    return Section("measured", "What was measured", sentences, _tables(skipped, unknown))


def _counted(run: Run) -> str:
    tensors = [tensor for tensor in run.tensors() if tensor.tied_to is None]
    dtypes = sorted({tensor.dtype for tensor in tensors})
    size = sum(tensor.numel for tensor in tensors)
    points = plural(len(run.checkpoints()), "checkpoint")
    kinds = f", stored as {joined(map(printable, dtypes))}" if dtypes else ""
    return f"{points} of {plural(len(tensors), 'tensor')} with {count(size)} parameters{kinds}."


def _tables(skipped: dict[str, str], unknown: list[str]) -> list[TableSpec]:
    found = []
    if skipped:
        rows = [(printable(name), printable(reason)) for name, reason in list(skipped.items())[:MOST_NAMES]]
        found.append(
            TableSpec(
                "skipped", f"Skipped ({len(skipped)})", ("name", "reason"), rows, _rest(skipped), folded=True
            )
        )
    if unknown:
        names = [(printable(name),) for name in unknown[:MOST_NAMES]]
        found.append(
            TableSpec(
                "unknown", f"Unknown names ({len(unknown)})", ("name",), names, _rest(unknown), folded=True
            )
        )
    return found


def _rest(names: dict[str, str] | list[str]) -> str:
    return f"The first {MOST_NAMES} of {count(len(names))}." if len(names) > MOST_NAMES else ""
