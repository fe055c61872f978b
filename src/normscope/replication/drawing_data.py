"""What a claim's figure shows, as plain numbers: lines, bars, a map or points, published ones behind ours.

A claim's file names the kind and where its numbers are; `views` draws the result. A series has a `column`
(paper, released or corrected), a `name`, and its points; `low` and `high` span the seeds.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any

from normscope.replication.claim import Claim
from normscope.replication.judging.document_values import (
    Document,
    field_value,
    heads_at,
    last_layer,
    matches,
    mean,
    plain_setting,
    saturation_curve,
)
from normscope.replication.judging.quantities import entry, leak_positions
from normscope.theory.dynamics.growth_boundary import measured_change, predicted_change
from normscope.theory.measures.time_series import reference

Groups = Mapping[str, Sequence[Document]]
Drawn = dict[str, Any]


def drawing(claim: Claim, results: Mapping[str, Sequence[Document]]) -> Drawn:
    """Return the figure of a claim; without results, nothing."""
    spec = claim.figure
    if not spec:
        return {}
    series: list[Drawn] = []
    for name, column in claim.columns.items():
        documents = [
            d
            for d in results.get(column.experiment, ())
            if d["status"] == "done" and matches(d, column.where)
        ]
        series += [{**part, "column": name} for part in KINDS[spec["kind"]](documents, spec)]
    if "published" in spec and series:
        series = [{**part, "column": "paper"} for part in _published(spec)] + series
    titles = {name: spec[name] for name in ("x_title", "y_title", "log_x") if name in spec}
    drawn = {"kind": spec["kind"], **titles, "series": _unique(series)} if series else {}
    return drawn | _automata(claim, results) if spec.get("automata") else drawn


def _automata(claim: Claim, results: Mapping[str, Sequence[Document]]) -> Drawn:
    """The automata of one training: the first whose saturated network differs, or any."""
    column = claim.columns["corrected"]
    found = [d for d in results.get(column.experiment, ()) if matches(d, column.where) and "automaton" in d]
    drawn = [d for d in found if "drawn" in d["automaton"]]
    if not drawn:
        return {}
    networks = [d["automaton"]["drawn"] for d in drawn]
    differing = (i for i, each in enumerate(networks) if each.get("exact") != each.get("model"))
    chosen = next(differing, 0)
    setting = ", ".join(f"{name} {plain_setting(v)}" for name, v in drawn[chosen]["changes"].items())
    return {"automata": {"setting": setting, "networks": networks[chosen]}}


def _unique(series: Sequence[Drawn]) -> list[Drawn]:
    """Both columns of a claim may rest on one series, which is drawn once, as the corrected one."""
    found: list[Drawn] = []
    for part in reversed(series):
        bare = {name: value for name, value in part.items() if name != "column"}
        if not any({n: v for n, v in other.items() if n != "column"} == bare for other in found):
            found.append(part)
    return found[::-1]


def _grouped(documents: Sequence[Document], spec: Mapping[str, Any]) -> Groups:
    found: dict[str, list[Document]] = {}
    for document in documents:
        name = str(plain_setting(document["changes"].get(spec["group"]))) if "group" in spec else ""
        found.setdefault(name, []).append(document)
    return found


def _curves(documents: Sequence[Document], spec: Mapping[str, Any]) -> list[Drawn]:
    """One line per group: the mean over trainings, spanned by the smallest and the largest."""
    if "fields" in spec:  # one line per field, named after it
        specs = {name: {**spec, "field": path} for name, path in spec["fields"].items()}
        return [
            {**line, "name": name}
            for name, one in specs.items()
            for line in _curves(documents, {key: value for key, value in one.items() if key != "fields"})
        ]
    drawn = []
    for name, group in _grouped(documents, spec).items():
        curves = [curve for document in group if (curve := _curve(document, spec))]
        points: dict[float, list[float]] = {}
        for curve in curves:
            for x, y in curve:
                points.setdefault(x, []).append(y)
        whole = {x: ys for x, ys in sorted(points.items()) if len(ys) == len(curves)}
        if whole:
            drawn.append(_line(name, whole))
    return drawn


def _line(name: str, points: Mapping[float, Sequence[float]]) -> Drawn:
    return {
        "name": name,
        "x": list(points),
        "y": [mean(ys) for ys in points.values()],
        "low": [min(ys) for ys in points.values()],
        "high": [max(ys) for ys in points.values()],
    }


def _curve(document: Document, spec: Mapping[str, Any]) -> list[tuple[float, float]]:
    if spec["field"] == "saturation":
        points: list[Any] = list(saturation_curve(document, "last"))
    elif "x_field" in spec:
        points = list(zip(document[spec["x_field"]], document[spec["field"]], strict=True))
    else:
        points = list(field_value(document, spec["field"]) or [])
    points = [(x, y) for x, y in points if y is not None and math.isfinite(y)]
    if not points:
        return []
    if spec["x"] == "progress":
        last = max(x for x, _ in points)
        points = [(x / last, y) for x, y in points]
    return _relative(points) if spec.get("relative") else [(x, y) for x, y in points]


def _relative(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(x, y / points[0][1]) for x, y in points]


def _layers(documents: Sequence[Document], spec: Mapping[str, Any]) -> list[Drawn]:
    """Saturation by layer, one line per group."""
    drawn = []
    for name, group in _grouped(documents, spec).items():
        layers = range(1, 1 + min(last_layer(document["saturation"]) for document in group))
        values = {
            float(layer): [row["cosine"] for d in group for row in d["saturation"] if row["layer"] == layer]
            for layer in layers
        }
        drawn.append(_line(name, {layer: found for layer, found in values.items() if None not in found}))
    return drawn


def _heads(documents: Sequence[Document], spec: Mapping[str, Any]) -> list[Drawn]:
    """How many positions heads attend to, over the length, as shares of all heads."""
    shares = [
        head["positions"] / document["length"]
        for document in documents
        for head in heads_at(document, "end")
        if head["positions"] is not None
    ]
    if not shares:
        return []
    bins = _histogram([(share, 1.0) for share in shares])
    length = documents[0]["length"]
    return [{"name": "", **bins, "mark": leak_positions(length) / length}]


def _histogram(weighted: Sequence[tuple[float, float]], count: int = 25) -> Drawn:
    heights = [0.0] * count
    for value, weight in weighted:
        heights[min(int(value * count), count - 1)] += weight
    total = math.fsum(heights)
    return {"x": [(i + 0.5) / count for i in range(count)], "y": [height / total for height in heights]}


def _bars(documents: Sequence[Document], spec: Mapping[str, Any]) -> list[Drawn]:
    """One set of bars per entry, or per type of head; one bar per group."""
    groups = _grouped(documents, spec)
    if "heads" in spec:
        wanted = [(kind, partial(_type_share, kind=kind)) for kind in spec["heads"]]
    else:
        wanted = [(bar["name"], partial(field_value, path=bar["path"])) for bar in spec["bars"]]
    drawn = []
    for name, value in wanted:
        found = {g: [v for d in documents if (v := value(d)) is not None] for g, documents in groups.items()}
        if any(found.values()):
            kept = {group: values for group, values in found.items() if values}
            drawn.append({**_line(name, dict(enumerate(kept.values()))), "x": list(kept)})
    return drawn


def _type_share(document: Document, kind: str) -> float | None:
    rows = heads_at(document, "end")
    return sum(row["type"] == kind for row in rows) / len(rows) if rows else None


def _map(documents: Sequence[Document], spec: Mapping[str, Any]) -> list[Drawn]:
    """log₂ of the last norm over the first, by learning rate and weight decay, and what theory predicts."""
    cells: dict[tuple[float, float], list[Document]] = {}
    for document in documents:
        cells.setdefault((document["weight_decay"], document["lr"]), []).append(document)
    if not cells:
        return []
    xs, ys = (sorted({cell[i] for cell in cells}) for i in (0, 1))
    z = [[_mean_change(cells.get((x, y), ()), measured_change) for x in xs] for y in ys]
    theory = [[_mean_change(cells.get((x, y), ()), predicted_change) for x in xs] for y in ys]
    return [{"name": "", "x": xs, "y": ys, "z": z, "theory": theory}]


def _mean_change(
    documents: Sequence[Document], change: Callable[[Document, str], float | None]
) -> float | None:
    found = mean([change(document, "body_norm") for document in documents])
    return found if math.isfinite(found) else None


def _scatter(documents: Sequence[Document], spec: Mapping[str, Any]) -> list[Drawn]:
    """One point per training, one set of points per seed."""
    drawn = []
    for seed in sorted({d["changes"].get("seed", 0) for d in documents}):
        pairs = [
            (entry(d, spec["x_path"]), entry(d, spec["y_path"]))
            for d in documents
            if d["changes"].get("seed", 0) == seed
        ]
        known = [(x, y) for x, y in pairs if x is not None and y is not None and math.isfinite(y)]
        drawn.append({"name": f"seed {seed}", "x": [x for x, _ in known], "y": [y for _, y in known]})
    return drawn


def _published(spec: Mapping[str, Any]) -> list[Drawn]:
    """The published points of a figure, read off it."""
    source = spec["published"]
    if "series" in source:
        known = reference(source["series"])
        points = [(float(step), float(value)) for step, value in zip(known.steps, known.values, strict=True)]
        return [{"name": source["series"], "x": [x for x, _ in points], "y": [y for _, y in points]}]
    text = files("normscope.replication").joinpath(f"published/{source['file']}").read_text("utf-8")
    rows = [
        row
        for row in csv.DictReader(text.splitlines())
        if all(row[name] == value for name, value in source["where"].items())
    ]
    if spec["kind"] == "heads":
        weighted = [
            ((float(row["bin_left"]) + float(row["bin_right"])) / 2 / source["length"], float(row["count"]))
            for row in rows
        ]
        return [{"name": "published", **_histogram(weighted)}]
    return [_published_line(name, points, spec) for name, points in _published_groups(rows, source).items()]


def _published_groups(
    rows: Sequence[Mapping[str, str]], source: Mapping[str, Any]
) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        name = " ".join(row[part] for part in source["group"])
        found.setdefault(name, []).append((float(row[source["x"]]), float(row[source["y"]])))
    return found


def _published_line(name: str, points: Sequence[tuple[float, float]], spec: Mapping[str, Any]) -> Drawn:
    if spec.get("x") == "progress":
        last = max(x for x, _ in points)
        points = [(x / last, y) for x, y in points]
    if spec["published"].get("relative"):
        points = _relative(points)
    return {"name": name, "x": [x for x, _ in points], "y": [y for _, y in points]}


KINDS: Mapping[str, Callable[[Sequence[Document], Mapping[str, Any]], list[Drawn]]] = {
    "curves": _curves,
    "layers": _layers,
    "heads": _heads,
    "bars": _bars,
    "map": _map,
    "scatter": _scatter,
}
