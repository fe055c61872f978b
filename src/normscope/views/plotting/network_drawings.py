"""What `ns.plot` draws of results of running the network.

They are typed Any, because importing their classes loads torch.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from normscope.errors import UsageError
from normscope.rows import SimilarityRow
from normscope.run import HeadRow, SaturationRow
from normscope.table import Table
from normscope.views.figures.network import (
    head_map,
    heads,
    homogeneity,
    lookahead,
    predictions,
    saturation,
    similarity,
)
from normscope.views.page.formatting import plural
from normscope.views.page.side_by_side import side_by_side
from normscope.views.plotting.drawings import Drawing


def of_saturation(found: Any) -> Drawing:
    """The saturation of every layer."""
    rows = _rows(found.table, SaturationRow, "the result has no layers")
    depth, tokens = max(row.layer for row in rows), max(row.tokens for row in rows)
    scope = f"{plural(depth, 'layer')} · {plural(tokens, 'token')} · scale {rows[0].scale:g}"
    return Drawing(scope, [saturation.layer_figure(rows)])


def of_heads(found: Any) -> Drawing:
    """The head map with its measures, and the histogram of positions."""
    rows = _rows(found.table, HeadRow, "the result has no heads")
    modules = len({row.module for row in rows})
    scope = f"{plural(len(rows), 'head')} in {plural(modules, 'attention module')}"
    return Drawing(scope, [head_map.map_figure(rows), heads.position_figure(rows)])


def of_saturation_and_heads(found: Any) -> Drawing:
    """Both beside each other, and each alone."""
    layers, attention = of_saturation(found.saturation), of_heads(found.heads)
    both = side_by_side("both", layers.figures[0], attention.figures[0])
    return Drawing(f"{layers.scope} · {attention.scope}", [both, *layers.figures, *attention.figures])


def of_similarity(found: Any) -> Drawing:
    """The similarity of every layer of two models."""
    rows = [SimilarityRow(0, "last", 0, **row) for row in found.table]
    if not rows:
        raise UsageError("the result has no layers, so there is nothing to draw")
    depth, tokens = max(row.layer for row in rows), max(row.tokens for row in rows)
    scope = f"{plural(depth, 'layer')} · {plural(tokens, 'token')}"
    return Drawing(scope, [similarity.pair_figure(rows)])


def of_ablations(found: Any) -> Drawing:
    """How much each head matters."""
    if not found.heads:
        raise UsageError("the result has no heads, so there is nothing to draw")
    heads = plural(len({(row.module, row.head) for row in found.heads}), "head")
    scope = f"{heads} · {plural(found.positions, 'position')} · {found.task}"
    return Drawing(scope, [predictions.ablation_figure([vars(row) for row in found.heads])])


def of_saturated_task(found: Any) -> Drawing:
    """The model and its saturated network at the same task."""
    document = {"networks": [vars(row) for row in found.networks]}
    scope = f"{plural(found.positions, 'position')} · {found.task} · c = {found.scale:g}"
    return Drawing(scope, [predictions.task_figure(document)])


def of_homogeneity(found: Any) -> Drawing:
    """The scaling curves, and the degrees."""
    degrees = list(found.degrees)
    curves = {row.module: vars(row) for row in degrees}
    layers = plural(max(row.layer for row in degrees), "layer")
    figures = [homogeneity.scaling_figure(curves), homogeneity.degree_figure([vars(row) for row in degrees])]
    return Drawing(f"output and {layers}" if len(degrees) > 1 else "output", figures)


def of_look_ahead(found: Any) -> Drawing:
    """The change of earlier states."""
    figure = lookahead.change_figure(found.sees_future, found.change, found.module)
    return Drawing("states at or before the changed tokens, all layers", [figure])


def _rows(table: Table, kind: Any, if_empty: str) -> list[Any]:
    """The rows of a result as those of a run file; a result has no step and no stage."""
    names = [field.name for field in fields(kind) if field.name not in ("step", "stage")]
    rows = [kind(step=0, **{name: row[name] for name in names if name in row}) for row in table]
    if not rows:
        raise UsageError(f"{if_empty}, so there is nothing to draw")
    return rows
