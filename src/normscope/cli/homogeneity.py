"""normscope homogeneity: degree and scaling curves of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normscope.cli.option_groups import gathers
from normscope.cli.options import (
    At,
    Blocks,
    JsonFlag,
    ModelsArgument,
    Reference,
    RunFile,
    Scales,
    placement,
    sentences,
)
from normscope.cli.output import print_json, print_notes, print_table, progress_bar
from normscope.cli.study_text import study_text
from normscope.errors import UsageError

if TYPE_CHECKING:
    from normscope.network.measuring.homogeneity import Homogeneity

EXAMPLES = (
    "normscope homogeneity bert-base-uncased",
    "normscope homogeneity my_model.py:build step_1000.pt --at 4096 --dtype float64",
    "normscope homogeneity my_model/ --scales 1:10 --reference 1000",
)


@gathers(run_on=sentences, place=placement)
def homogeneity(
    source: ModelsArgument,
    run_on: dict[str, Any],
    place: dict[str, Any],
    at: At = 1.0,
    scales: Scales = None,
    reference: Reference = None,
    blocks: Blocks = None,
    run: RunFile = None,
    json: JsonFlag = False,
) -> None:
    """Measure how homogeneous a model is in its parameters.

    Prints the degree k of each layer: scaling the parameters by c scales its output by c^k. Of a series,
    name one model. With --run, the scaling curves go into the run file.
    """
    text = study_text(source, run_on, default=8)

    from normscope.network.measuring.homogeneity import Curve
    from normscope.network.places.placement import Placement
    from normscope.network.study import StudyConfig, study_homogeneity

    config = StudyConfig(run=run, placement=Placement(**place), blocks=blocks)
    curve = Curve(
        scales=Curve.scales if scales is None else _scales(scales),
        reference=Curve.reference if reference is None else reference,
        at=at,
    )
    with progress_bar("scaling") as progress:
        found = study_homogeneity(source, text, config, curve, progress)
    if json:
        print_json({"degrees": found.degrees, "warnings": found.warnings})
    else:
        _print(found)


def _scales(text: str) -> list[float]:
    """The numbers in `1:10` (whole numbers from 1 to 10) or `1,2.5,10`, or both: `0.5,1:10`."""
    try:
        found: list[float] = []
        for part in text.split(","):
            low, mark, high = part.partition(":")
            found += map(float, range(int(low), int(high) + 1)) if mark else [float(part)]
    except ValueError:
        raise UsageError(
            f"--scales takes numbers such as 1,2.5,10 or whole numbers such as 1:10; got {text!r}"
        ) from None
    return found


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
