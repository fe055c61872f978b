"""normscope homogeneity: degree and scaling curves of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normscope.cli.option_groups import gathers
from normscope.cli.options import At, Blocks, JsonFlag, ModelsArgument, RunFile, placement, sentences
from normscope.cli.output import print_json, print_notes, print_table, progress_bar
from normscope.cli.study_text import study_text

if TYPE_CHECKING:
    from normscope.network.measuring.homogeneity import Homogeneity

EXAMPLES = (
    "normscope homogeneity bert-base-uncased",
    "normscope homogeneity my_model.py:build step_1000.pt --at 4096 --dtype float64",
)


@gathers(run_on=sentences, place=placement)
def homogeneity(
    source: ModelsArgument,
    run_on: dict[str, Any],
    place: dict[str, Any],
    at: At = 1.0,
    blocks: Blocks = None,
    run: RunFile = None,
    json: JsonFlag = False,
) -> None:
    """Measure how homogeneous a model is in its parameters.

    Prints the degree k of each layer: scaling the parameters by c scales its output by c^k. Of a series,
    name one model. With --run, the scaling curves go into the run file.
    """
    text = study_text(source, run_on, default=8)

    from normscope.network.places.placement import Placement
    from normscope.network.study import StudyConfig, study_homogeneity

    config = StudyConfig(run=run, placement=Placement(**place), blocks=blocks)
    with progress_bar("scaling") as progress:
        found = study_homogeneity(source, text, config, at, progress)
    if json:
        print_json({"degrees": found.degrees, "warnings": found.warnings})
    else:
        _print(found)


def _print(found: Homogeneity) -> None:
    names = ["layer", "module", "degree", "±", "Euler", "residual", "exists", "cosine"]
    rows = [
        [
            row.layer if row.layer >= 0 else None,
            row.module,
            *(round(value, 3) for value in (row.degree, row.high - row.degree, row.euler, row.residual)),
            "yes" if row.exists else "no",
            round(row.cosine[0], 3),
        ]
        for row in found.degrees
    ]
    print_table(names, rows, "degree k of f(x; cθ) = c^k f(x; θ), by slope and by Euler's identity")
    print_notes(found.warnings)
