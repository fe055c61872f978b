"""What was measured and what was not: checkpoints, tensors, skipped and unknown names."""

from __future__ import annotations

from normscope.anatomy import in_body, of_scope, unknown_tensors
from normscope.run import Run
from normscope.theory.measures.group_sums import Grouped
from normscope.theory.measures.run_summary import summarise
from normscope.views.page.formatting import count, plural, points_to_draw
from normscope.views.page.page_parts import Section, TableSpec
from normscope.words import joined, printable

MOST_STEPS_SHOWN = 250
MOST_NAMES = 200


def by_step(total: Grouped) -> TableSpec:
    """The measures of the whole scope at each step."""
    names = ("norm", "rms", "update", "cosine", "alignment", "radial", "diffusive", "distance")
    tables = [total.measure(name)[:, 0] for name in names]
    kept = points_to_draw(len(total.steps), MOST_STEPS_SHOWN)
    rows = [(int(total.steps[i]), *(float(table[i]) for table in tables)) for i in kept]
    note = (
        ""
        if len(kept) == len(total.steps)
        else f"{len(kept)} of {count(len(total.steps))} steps; normscope export writes all."
    )
    whose = of_scope(total.scope)
    columns = ("step", f"norm{whose}", *names[1:])
    key = f"norm{whose}-by-step".replace(" ", "-")
    return TableSpec(key, f"Every measure by step{whose}", columns, rows, note, folded=True)


def section(run: Run) -> Section:
    """How much was measured, and the names that were left out or not recognised."""
    tensors, skipped = run.tensors(), run.skipped()
    tied = [tensor for tensor in tensors if tensor.tied_to is not None]
    unknown = run.meta.get("unknown_names")
    if unknown is None:
        unknown = [tensor.name for tensor in unknown_tensors(tensors)]
    sentences = [_counted(run), _body(run)]
    if tied:
        sentences.append(f"Counted once, because they share storage: {plural(len(tied), 'tensor')}.")
    if skipped:
        sentences.append(f"Not measured: {plural(len(skipped), 'tensor')}, listed at the top of the page.")
    if unknown:
        names = plural(len(unknown), "name")
        sentences.append(f"Not known from any model family, so given the role “other”: {names}.")
    return Section("measured", "What was measured", sentences, [*_networks(run), *_tables(unknown)])


def _counted(run: Run) -> str:
    tensors = [tensor for tensor in run.tensors() if tensor.tied_to is None]
    dtypes = sorted({tensor.dtype for tensor in tensors})
    size = sum(tensor.numel for tensor in tensors)
    points = plural(len(run.checkpoints()), "checkpoint")
    kinds = f", stored as {joined(map(printable, dtypes))}" if dtypes else ""
    return f"{points} of {plural(len(tensors), 'tensor')} with {count(size)} parameters{kinds}."


def _body(run: Run) -> str:
    """How much of the model is the body, whose norm the page shows."""
    tensors = [tensor for tensor in run.tensors() if tensor.tied_to is None]
    body = [tensor.numel for tensor in tensors if in_body(tensor.role, tensor.shape)]
    if not body:
        return "Everything is an embedding, an output head or a scalar, so there is no body: all count."
    outside = sum(tensor.numel for tensor in tensors) - sum(body)
    others = f"; the other {count(outside)} are embeddings, output head and scalars" if outside else ""
    return f"{count(sum(body))} parameters are the body{others}."


def _networks(run: Run) -> list[TableSpec]:
    """The norms of the networks, if one checkpoint holds several."""
    rows = [
        (printable(part.stage), printable(part.component), part.parameters, part.norm_first, part.norm_last)
        for part in summarise(run).components
    ]
    columns = ("stage", "network", "parameters", "norm of all its parameters at the start", "at the end")
    start = 0 if any(stage for stage, *_ in rows) else 1
    table = TableSpec("networks", "Several networks", columns[start:], [row[start:] for row in rows])
    return [table] if rows else []


def _tables(unknown: list[str]) -> list[TableSpec]:
    if not unknown:
        return []
    names = [(printable(name),) for name in unknown[:MOST_NAMES]]
    rest = f"The first {MOST_NAMES} of {count(len(unknown))}." if len(unknown) > MOST_NAMES else ""
    return [TableSpec("unknown", f"Unknown names ({len(unknown)})", ("name",), names, rest, folded=True)]
