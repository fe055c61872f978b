"""What was measured on a network, as rows of a run file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from normscope.network.attention.examples import Example
from normscope.network.attention.heads import Heads
from normscope.network.limit.homogeneity import Homogeneity
from normscope.network.limit.saturation import Saturation
from normscope.network.running.models import Subject
from normscope.run import HeadRow, Run, SaturationRow

RowType = TypeVar("RowType", SaturationRow, HeadRow)


def saturation_rows(result: Saturation, step: int, stage: str = "") -> list[SaturationRow]:
    """One row a layer; a convergence that was not examined (one scale) is recorded as not shown."""
    return [
        SaturationRow(
            step=step,
            module=layer.module,
            layer=layer.layer,
            cosine=layer.cosine,
            deviation=layer.deviation,
            tokens=layer.tokens,
            scale=layer.scale,
            converged=bool(layer.converged),
            baseline=layer.baseline,
            stage=stage,
        )
        for layer in result.layers
    ]


def head_rows(result: Heads, step: int, stage: str = "") -> list[HeadRow]:
    """One row a head."""
    return [HeadRow(step=step, stage=stage, **vars(head)) for head in result.heads]


def record(
    run: Run,
    step: int,
    saturation: Saturation,
    heads: Heads | None = None,
    examples: Sequence[Example] = (),
) -> None:
    """Write one step's measurements, all or nothing; measuring a step again replaces it."""
    with run.transaction():
        run.write(saturation_rows(saturation, step))
        if heads is not None:
            run.write(head_rows(heads, step))
        for example in examples:
            run.set_artifact("attention", f"{step}/{example.module}/{example.head}", example.document())


class Store:
    """A run file's steps together with how each was measured, so that a killed series is continued.

    The note of how is written after the step itself: a step without it is measured again.
    """

    KIND = "saturation-settings"

    def __init__(self, run: Run, settings: Mapping[str, Any]) -> None:
        self._run = run
        self._settings = dict(settings)

    def has(self, subject: Subject) -> bool:
        """Whether this very model was measured in the same way before."""
        return self._run.artifacts(self.KIND).get(str(subject.step)) == self._note(subject)

    def recorded(self, subject: Subject) -> tuple[list[SaturationRow], list[HeadRow]]:
        """What was measured then."""
        layers = [replace(row, converged=bool(row.converged)) for row in self._rows(SaturationRow, subject)]
        heads = self._rows(HeadRow, subject)
        return sorted(layers, key=_layer_order), sorted(heads, key=_head_order)

    def keep(self, subject: Subject, layers: Saturation, heads: Heads, shown: Sequence[Example]) -> None:
        """Write a step, then how it was measured."""
        record(self._run, subject.step, layers, heads, shown)
        with self._run.transaction():
            self._run.set_artifact(self.KIND, str(subject.step), self._note(subject))

    def _note(self, subject: Subject) -> dict[str, Any]:
        return {**self._settings, "model": subject.label}

    def _rows(self, kind: type[RowType], subject: Subject) -> list[RowType]:
        rows: list[dict[str, Any]] = list(self._run.table(kind))
        return [kind(**row) for row in rows if row["step"] == subject.step and row["stage"] == ""]


def _layer_order(row: SaturationRow) -> tuple[str, int]:
    return row.module.rpartition(".")[0], row.layer


def _head_order(row: HeadRow) -> tuple[int, str, int]:
    return row.layer, row.module, row.head


def record_curves(run: Run, result: Homogeneity) -> None:
    """Write the scaling curves, one a layer and one for the output."""
    with run.transaction():
        for row in result.degrees:
            curve = {
                "c": row.c,
                "cosine": row.cosine,
                "norm": row.norm,
                "degree": row.degree,
                "euler": row.euler,
            }
            run.set_artifact("scaling-curve", row.module, curve)
