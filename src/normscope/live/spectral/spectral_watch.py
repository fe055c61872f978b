"""When the spectral norms of a training are measured, and what is published of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol
from zlib import crc32

import numpy as np
from torch import Tensor, nn

from normscope.errors import NormscopeError, UsageError
from normscope.live.model.ranks import Ranks
from normscope.live.model.sharding import Layout, flat_starts, local
from normscope.live.probing.guarding import Guarding
from normscope.live.spectral.matrix_shards import LiveMatrix, ShardBlock, blocks, live_matrices
from normscope.live.spectral.shared_products import Cut, SharedMatrix, SharedProducts
from normscope.live.spectral.spectral_estimate import FIRST_ROUNDS, WIDTH, MatrixEstimate
from normscope.live.writing.journal_entries import Note, SpectralRows
from normscope.rows import SpectrumRow
from normscope.schedule import Schedule
from normscope.weights.live_spectra import POWER, UNMEASURED

SPECTRAL_NOTE = "monitor.spectral"
"""The key in the run file's metadata that says what could not be measured."""
MEMORY = 1 << 28
"""Bytes of vectors that the first record of a group of matrices may need."""
Spectral = Schedule | bool


class SpectralDestination(Protocol):
    """Where what was found goes; only rank 0 has one."""

    def put(self, entry: Note) -> None:
        """Queue a remark for the run file."""

    def publish_spectra(self, found: SpectralRows) -> None:
        """Queue rows for the run file, the loggers and the alarms."""


class SpectralWatch:
    """What a monitor sees of the spectral norms; every rank has one and they act alike."""

    def __init__(
        self, ranks: Ranks, guard: Guarding, spend: Callable[[float], None], spectral: Spectral
    ) -> None:
        """`spend` is told when a measurement began, as soon as it has ended."""
        self._ranks, self._guard, self._spend, self._spectral = ranks, guard, spend, spectral
        self._noted = ""
        if len({*ranks.gather(str(spectral))}) > 1:
            ranks.share(UsageError("spectral must be the same on every rank"))
        self._groups: list[list[SharedMatrix]] = []

    def look_at(self, model: nn.Module, layout: Layout) -> None:
        """The model is new, or has changed; every rank must call this."""
        if self._spectral is False:
            return
        self._layout = layout
        self._names = [info.name for info in layout.infos]
        problem: NormscopeError | None = None
        found, self._left_out = live_matrices(layout)
        self._blocks: dict[LiveMatrix, tuple[int, list[ShardBlock]]] = {}
        try:
            self._blocks = self._own_blocks(model, found)
        except NormscopeError as error:
            problem = error
        problems = [each for each in self._ranks.gather(problem) if each is not None]
        if problems:
            self._left_out["every matrix"], found = str(problems[0]), []
        self._groups = [[self._shared(each) for each in group] for group in _grouped(found)]

    def _own_blocks(
        self, model: nn.Module, matrices: Sequence[LiveMatrix]
    ) -> dict[LiveMatrix, tuple[int, list[ShardBlock]]]:
        """Of each matrix that this rank counts, the position of its parameter and the blocks."""
        layout, starts = self._layout, flat_starts(model)
        here = {int(i): at for at, i in enumerate(layout.indices) if layout.counted[at]}
        several: dict[int, list[LiveMatrix]] = {}
        for each in matrices:
            several.setdefault(each.tensor, []).append(each)
        found = {}
        for tensor, own in several.items() if here else ():
            if tensor in here:
                parameter = layout.parameters[here[tensor]]
                start = starts.get(id(parameter))
                of = blocks(parameter, start, layout.infos[tensor].shape, own)
                found.update({each: (here[tensor], of[each.number]) for each in own})
        return found

    def _shared(self, matrix: LiveMatrix) -> SharedMatrix:
        info = self._layout.infos[matrix.tensor]
        rounding = 1e-13 if info.dtype == "float64" else 2e-7
        seed = (crc32(info.name.encode()), matrix.number)
        return SharedMatrix(matrix, MatrixEstimate(matrix.rows, matrix.columns, seed, rounding))

    def due(self, step: int, recorded: bool) -> bool:
        """Whether spectral norms are measured after this step."""
        return recorded if isinstance(self._spectral, bool) else step in self._spectral

    def after(self, step: int, recorded: bool, destination: SpectralDestination | None) -> None:
        """Publish the spectral norms after a step; every rank must call this."""
        if self._spectral is False or not self.due(step, recorded and bool(self._spectral)):
            return
        start = time.perf_counter()
        with self._guard.doing("measuring spectral norms"):
            failures = self._measure(step)
            if failures:
                where = f"on {failures} of {self._ranks.world} ranks"
                self._guard.warn(f"no spectral norms at step {step}: measuring failed {where}", key=where)
            elif destination is not None:
                destination.publish_spectra(SpectralRows(step, self._rows(step), self._names))
                self._say_left_out(step, destination)
        self._spend(start)

    def _measure(self, step: int) -> int:
        """Make the products; return on how many ranks that failed, after which nothing is kept."""
        failures = []
        for group in self._groups:
            products = SharedProducts(self._ranks, group, lambda i, group=group: self._cut(group[i].matrix))  # type: ignore[misc]
            products.run(step)
            failures.append(products.failure)
        mine = np.array([float(any(failures))])
        failed = int((self._ranks.reduce(mine) if self._ranks.world > 1 else mine)[0])
        for error in failures:
            if error is not None:
                self._forget()
                raise error
        if failed:
            self._forget()
        return failed

    def _forget(self) -> None:
        for group in self._groups:
            for each in group:
                each.estimate.forget()

    def _cut(self, matrix: LiveMatrix) -> Cut:
        known = self._blocks.get(matrix)
        if known is None:
            return ()
        at, parts = known
        values: Tensor = local(self._layout.parameters[at]).detach()
        return [(block, block.cut(values)) for block in parts]

    # -- rows ------------------------------------------------------------------------------

    def _rows(self, step: int) -> list[SpectrumRow]:
        together: dict[tuple[int, int], list[SharedMatrix]] = {}
        for group in self._groups:
            for each in group:
                together.setdefault((each.matrix.tensor, each.matrix.part), []).append(each)
        return [_row(step, *place, several) for place, several in together.items()]

    def _say_left_out(self, step: int, destination: SpectralDestination) -> None:
        """Say once what is not measured, and keep it in the run file."""
        text = "; ".join(f"{name}: {why}" for name, why in self._left_out.items())
        if text and text != self._noted:
            self._noted = text
            note = f"since step {step}, no spectral norm of {text}"
            self._guard.warn(note if len(note) < 400 else f"{note[:400]}…")
            destination.put(Note(SPECTRAL_NOTE, note))


def _grouped(matrices: Sequence[LiveMatrix]) -> Iterator[list[LiveMatrix]]:
    """The matrices in groups whose first record needs at most MEMORY bytes of vectors, or one matrix."""
    group: list[LiveMatrix] = []
    needed = 0
    for each in matrices:
        vectors = min(FIRST_ROUNDS * WIDTH, each.rows, each.columns)
        bytes_ = 8 * vectors * (each.rows + 2 * each.columns)
        if group and needed + bytes_ > MEMORY:
            yield group
            group, needed = [], 0
        group.append(each)
        needed += bytes_
    if group:
        yield group


def _row(step: int, tensor: int, part: int, several: Sequence[SharedMatrix]) -> SpectrumRow:
    """The row of a matrix; of the matrices of a convolution together, whose largest value counts."""
    notes = [each.note or "it was not measured" for each in several if each.found is None]
    if notes:
        return SpectrumRow(
            step,
            "weights",
            tensor,
            UNMEASURED,
            spectral_norm=None,
            part=part,
            detail={"note": notes[0], "live": True},
        )
    known = [each.found for each in several if each.found is not None]
    largest = max(known, key=lambda each: each.value)
    error = max(each.value + each.error for each in known) - largest.value
    squares = sum(each.norm**2 for each in known)
    return SpectrumRow(
        step,
        "weights",
        tensor,
        POWER,
        spectral_norm=largest.value,
        norm=squares**0.5,
        stable_rank=squares / largest.value**2 if largest.value else None,
        part=part,
        detail={
            "error": {"spectral_norm": max(error, largest.error)},
            "residual": largest.residual,
            "converged": all(each.converged for each in known),
        },
    )
