"""normscope saturate: saturation by layer and head types, beside a random baseline."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from normscope.cli.head_types import print_changes
from normscope.cli.option_groups import gathers, refuse_unused, step_numbers
from normscope.cli.options import (
    JsonFlag,
    ModelsArgument,
    RunFile,
    example,
    limit,
    placement,
    sentences,
    series,
)
from normscope.cli.output import console, print_json, print_notes, print_table, progress_bar
from normscope.cli.predictions import prediction_options, predictions, print_predictions
from normscope.cli.study_text import study_text
from normscope.theory.measures.head_changes import changes_over_steps, clearest_heads

if TYPE_CHECKING:
    from normscope.network.step_predictions import PredictionOptions
    from normscope.network.study import Study
    from normscope.rows import HeadRow, SimilarityRow

NO_RUN_FILE = "the attention on the sentence is kept in a run file, and there is none: add --run run.db"
EXAMPLES = (
    "normscope saturate bert-base-uncased",
    "normscope saturate checkpoints/ --text sentences.txt --run run.db",
    "normscope saturate before/ after/ --steps 0,1 --similarity",
    "normscope saturate my_model.py:build 'checkpoints/*.pt' --no-heads",
    "normscope saturate bert-base-uncased --run run.db --sentence 'The jury said that it was fair.'",
    "normscope saturate gpt2 --task --ablate all",
)


@gathers(read=series, run_on=sentences, shown=example, place=placement, measured=limit, predicted=predictions)
def saturate(
    source: ModelsArgument,
    read: dict[str, Any],
    run_on: dict[str, Any],
    shown: dict[str, Any],
    place: dict[str, Any],
    measured: dict[str, Any],
    predicted: dict[str, Any],
    run: RunFile = None,
    json: JsonFlag = False,
) -> None:
    """Measure how saturated each layer of a model is.

    Compares each layer with its limit for infinitely large parameters, and says which attention heads act
    as argmax and which as mean. The results of a series go into a run file (run.db by default).
    """
    if not measured["heads"]:
        refuse_unused("with --no-heads", **shown)
    text = study_text(source, run_on | shown, default=100)

    from normscope.network.loading.models import SeriesOptions
    from normscope.network.places.placement import Placement
    from normscope.network.settling.full_text import Limit
    from normscope.network.study import StudyConfig, study

    scales = Limit(scales=tuple(measured["scale"])) if measured["scale"] else Limit()
    options = SeriesOptions(step_numbers(read["steps"]), read["revisions"], read["pattern"])
    more = prediction_options(**predicted)
    chosen = {name: measured[name] for name in ("baseline", "heads", "similarity", "blocks")}
    chosen["command"] = shlex.join(["normscope", *sys.argv[1:]])
    config = StudyConfig(
        scales,
        run=run,
        placement=Placement(**place),
        series=options,
        predictions=more,
        **chosen,
    )
    with progress_bar("measuring") as progress:
        found = study(source, text, config, progress)
    if shown["sentence"] and run is None and len({(row.stage, row.step) for row in found.layers}) == 1:
        found = replace(found, warnings=(*found.warnings, NO_RUN_FILE))
    if json:
        print_json(_document(found, more))
    else:
        _print(found)


def _document(found: Study, more: PredictionOptions) -> dict[str, Any]:
    """What --json prints; predictions only if they were asked for."""
    return {
        "layers": found.layers,
        "heads": found.heads,
        "warnings": found.warnings,
        "look_ahead": found.look_ahead,
        "head_changes": changes_over_steps(found.heads),
        "similarity": found.similarity,
        **({"tasks": found.tasks} if more.task else {}),
        **({"ablations": found.ablations} if more.ablate else {}),
    }


def _print(found: Study) -> None:
    where = ["stage"] if any(row.stage for row in found.layers) else []
    where += ["step"] if len(found.steps) > 1 else []
    names = [*where, "layer", "module", "trained", "± tokens", "random", "converged", "settles at"]
    rows = [
        [
            *(getattr(row, name) for name in where),
            row.layer,
            row.module,
            *(row.cosine, row.deviation, row.baseline),
            "yes" if row.converged else "no",
            _scale(row.settles_at),
        ]
        for row in found.layers
    ]
    scales = ", ".join(dict.fromkeys(f"{_scale(row.scale)}" for row in found.layers))
    title = f"saturation: mean cosine between f(x; θ) and its limit f(x; cθ), c = {scales}"
    print_table(names, [_rounded(row) for row in rows], title)
    if found.heads:
        stage, step = found.heads[-1].stage, found.heads[-1].step
        _print_heads([head for head in found.heads if (head.stage, head.step) == (stage, step)])
        for changes in changes_over_steps(found.heads):
            print_changes(changes)
    print_predictions(found.tasks[-1:], found.ablations[-1:])
    if found.similarity:
        _print_similarity(found.similarity)
    _print_notes(found)


def _print_heads(heads: list[HeadRow]) -> None:
    from normscope.network.settling.head_types import HEAD_TYPES

    counts = ", ".join(f"{sum(head.type == kind for head in heads)} {kind}" for kind in HEAD_TYPES)
    console().print(f"\n{len(heads)} heads: {counts}; the clearest of each type:", markup=False)
    shown = [head for kind in HEAD_TYPES for head in clearest_heads(heads, kind)]
    names = ["type", "layer", "head", "margin", "positions", "split", "effective", "largest", "overlap"]
    if len({head.module for head in heads}) > len({head.layer for head in heads}):  # encoder and decoder
        names.insert(1, "module")
    rows = [_rounded([getattr(head, name) for name in names]) for head in shown]
    more = [[_scale(head.settles_at), *_attends(head)] for head in shown]
    columns = [*names, "settles at", "attends to", "saturated"]
    print_table(columns, [[*row, *rest] for row, rest in zip(rows, more, strict=True)])


def _attends(head: HeadRow) -> list[str]:
    """Where a head attends in the trained and in the saturated network, if one pattern dominates."""
    found = head.attends or {}
    return [found.get(name) or "–" for name in ("name", "saturated_name")]


def _scale(scale: float | None) -> str | None:
    """A scale as a power of two."""
    if scale is None or not math.isfinite(scale):
        return None
    return f"{scale:g}" if scale < 4096 else f"2^{math.log2(scale):g}"


def _print_similarity(rows: Sequence[SimilarityRow]) -> None:
    """One row per step and layer: debiased CKA and PWCCA with the last step and with the previous one."""
    where = ["stage", "step"] if any(row.stage for row in rows) else ["step"]
    where += ["layer", "module"]
    found: dict[tuple[object, ...], dict[tuple[str, str], float | None]] = {}
    measures = {"CKA": "cka_debiased", "PWCCA": "pwcca"}
    for row in rows:
        values = found.setdefault(tuple(getattr(row, name) for name in where), {})
        values |= {(name, row.other): getattr(row, field) for name, field in measures.items()}
    columns = [(name, other) for name in measures for other in ("last", "previous")]
    shown = [_rounded([*place, *map(values.get, columns)]) for place, values in found.items()]
    names = [*where, *(f"{name} {other}" for name, other in columns)]
    print_table(names, shown, "similarity of states with the last and with the previous checkpoint")


def _print_notes(found: Study) -> None:
    say = partial(console().print, markup=False)
    for entry in found.look_ahead[-1:]:
        sight = "sees later tokens" if entry.sees_future else "does not see later tokens"
        say(f"\nposition t {sight} ({'causal' if entry.causal else 'not causal'} by design)", style="dim")
    print_notes(found.warnings)


def _rounded(row: Sequence[object]) -> list[object]:
    """Round to three decimals: more would be noise."""
    return [round(value, 3) if isinstance(value, float) else value for value in row]
