"""Measure the whole network on a fixed batch, between two steps of its training.

Saturation and head types come from passes with scaled parameters; attention, residual stream and output
from one pass as it is. A part that cannot be measured is named, and the others are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

from normscope.errors import ModelError, ScaleOverflow
from normscope.live.model.ranks import Ranks
from normscope.live.model.untouched import untouched
from normscope.live.probing.plain_pass import PlainPass
from normscope.live.probing.probe_batch import device_of, moved
from normscope.live.probing.probe_ranks import ProbeRanks, probe_ranks, tensor_parallel
from normscope.network.measuring.joint import SaturationAndHeads, saturation_and_heads
from normscope.network.recording import head_rows, saturation_rows
from normscope.network.running.batches import Batch, sample
from normscope.network.settling.climb import ABOVE, USUAL
from normscope.network.settling.full_text import Limit
from normscope.network.watching.block_lists import BlockList, find_blocks
from normscope.rows import ActivationRow, AttentionRow, HeadRow, SaturationRow

NetworkRow = SaturationRow | HeadRow | AttentionRow | ActivationRow

_LIMITS = (Limit((USUAL, ABOVE)), Limit((USUAL,)))
"""For several ranks: scales that do not depend on what any rank measures, or they would wait forever."""


@dataclass
class Findings:
    """What one probe found, why parts of it are missing, and what a reader must know."""

    step: int
    rows: list[NetworkRow] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure one part; an error is a problem of this part alone."""
        try:
            yield
        except Exception as error:  # a model may raise anything
            self.problems.append(f"{name} was not measured: {_sentence(error)}")

    def expect(self, rows: Sequence[NetworkRow], missing: str) -> None:
        """Keep rows; say what is missing if there are none."""
        self.rows.extend(rows)
        if not rows:
            self.problems.append(missing)


class NetworkProbe:
    """Measures a model on a fixed batch; every rank has one, and calls it at the same steps."""

    def __init__(
        self, model: nn.Module, batches: Sequence[Batch], ranks: Ranks, names: Sequence[str]
    ) -> None:
        self.ranks: ProbeRanks = probe_ranks(model, ranks, names)
        self._batches = _agreed(batches, ranks) if self.ranks.together else list(batches)

    def measure(self, step: int) -> Findings | None:
        """Measure the model as it is now; None on a rank that does not run it."""
        found = Findings(step)
        if self.ranks.problem is not None:
            found.problems.append(f"the network is not measured, because {self.ranks.problem}")
            return found
        if not self.ranks.runs:
            return None
        model = self.ranks.module
        with untouched(model):
            batches = [moved(batch, device_of(model)) for batch in self._batches]
            self._plain(model, batches, found)
            with found.part("saturation"):
                self._saturation(model, batches, found)
        return found

    def _plain(self, model: nn.Module, batches: Sequence[Batch], found: Findings) -> None:
        lists: list[BlockList] = []
        with found.part("the residual stream by layer"):
            lists = find_blocks(model, sample(batches))
        with found.part("attention and activations"):
            passing = PlainPass(model, lists)
            for batch in batches:
                passing.run(batch)
            attention, activations = passing.attention_rows(found.step), passing.activation_rows(found.step)
            found.expect(attention, "no attention was seen in the model, so no heads are recorded")
            found.rows.extend(activations)
            if not any(row.kind == "output" for row in activations):
                found.problems.append("the model returns no output logits, so their norm is not recorded")
            if tensor_parallel(model):
                found.problems.append(
                    "heads are split over ranks (tensor parallelism): those of rank 0 are recorded"
                )

    def _saturation(self, model: nn.Module, batches: Sequence[Batch], found: Findings) -> None:
        result = self._limit(lambda limit: saturation_and_heads(model, batches, limit=limit))
        found.rows += saturation_rows(result.saturation, found.step)
        found.rows += head_rows(result.heads, found.step)
        found.remarks += result.messages

    def _limit(self, measure: Callable[[Limit], SaturationAndHeads]) -> SaturationAndHeads:
        """Measure with the limit that is chosen on the batch; on several ranks, at fixed scales."""
        if not self.ranks.together:
            return measure(Limit())
        try:
            return measure(_LIMITS[0])
        except ScaleOverflow:  # on every rank, whichever has the largest value
            return measure(_LIMITS[1])


def _agreed(batches: Sequence[Batch], ranks: Ranks) -> list[Batch]:
    """The batches of rank 0 on every rank."""
    sent = [[moved(batch, torch.device("cpu")) for batch in batches] if ranks.rank == 0 else []]
    dist.broadcast_object_list(sent, src=0)
    return sent[0]


def _sentence(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return text if isinstance(error, ModelError) else f"{type(error).__name__}: {text}"
