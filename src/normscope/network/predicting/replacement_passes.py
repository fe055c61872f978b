"""Forward passes with heads replaced, as many replacements in one pass as fit, and their changes summed up.

Copies of a batch run as one larger batch. Whether that is the same as running them one by one is checked on
every batch: its first pass has a last copy in which nothing is replaced, which must give what the
batch gives by itself, and every attention call must have the copies' rows as its batch. Otherwise
heads are replaced one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from normscope.network.predicting.comparison import Mean, Scored, SentenceSums, difference, scored
from normscope.network.predicting.head_replacement import CopiesMixed, HeadReplacer, Replacement
from normscope.network.predicting.predictions import Predicted, PredictionReader, labels_of
from normscope.network.predicting.row_copies import copies_of, row_count
from normscope.network.running.batches import Batch
from normscope.progress import Progress

POSITIONS = 1024
"""Positions in one pass: copies of a batch run together up to this many; more is not faster."""

LOGITS = 1 << 26
"""Numbers that the outputs of one pass may have, so that a large vocabulary does not fill the memory."""

_SAME = {torch.float64: 1e-9, torch.float32: 1e-3}
"""The largest divergence or movement of an unchanged copy that is rounding."""

Changes = dict[str, Tensor]
"""Name → one number per position."""


class ReplacementPasses:
    """Measures every replacement on one batch after the other."""

    def __init__(
        self,
        model: nn.Module,
        plans: Sequence[Replacement],
        means: Mapping[str, Tensor],
        reader: PredictionReader,
    ) -> None:
        self.plans, self._reader = plans, reader
        self._replacer = HeadReplacer(model, means)
        self._sums: dict[str, SentenceSums] = {}
        self._before: Scored
        self._loss = SentenceSums()
        self._mixed = self._visible_targets = False
        self._by_rounding = 0.0
        self.positions = 0

    def add(self, batch: Batch, progress: Progress) -> None:
        """Measure every replacement on one batch."""
        before = self._reader.run(batch)
        self._before = scored(before, self._reader.task)
        sentences = int(before.sentences.max()) + 1 if len(before.sentences) else 0
        self.positions += len(before.sentences)
        if self._before.loss is not None:
            self._loss.add(self._before.loss, before.sentences, sentences)
        self._visible_targets |= self._reader.task == "tokens" and labels_of(batch) is None
        found = self._measured(batch, before, progress)
        for name in found[0] if found else ():
            values = torch.stack([changes[name] for changes in found])
            self._sums.setdefault(name, SentenceSums()).add(values, before.sentences, sentences)

    @property
    def loss(self) -> float | None:
        """The model's own loss; None if nothing says what is right."""
        return self._loss.mean().value if self._loss.positions else None

    def means(self) -> dict[str, list[Mean]]:
        """Name → the mean change of each replacement."""
        return {name: sums.means() for name, sums in self._sums.items()}

    def remarks(self) -> Iterator[str]:
        """What the reader should know about how it was measured."""
        if self._mixed:
            yield (
                "copies of a batch could not be run as one larger batch, because its rows are not "
                "independent in this model: heads were replaced one at a time"
            )
        if self._by_rounding > 0:
            yield (
                f"rounding alone changes {100 * self._by_rounding:.2g} % of the top predictions, in a copy "
                "of the text in which nothing is replaced: measure in a wider dtype"
            )
        if self._visible_targets:
            yield "without labels, the loss is that of tokens the model sees: mask some, and give labels"

    def _measured(self, batch: Batch, before: Predicted, progress: Progress) -> list[Changes]:
        rows, total = row_count(batch), len(self.plans)
        copies = 1 if rows is None or self._mixed else _copies(before)
        found: list[Changes] = []
        if copies > 1 and total > 1:
            found = self._checked(batch, before, copies, rows or 0)
        while len(found) < total:
            progress(len(found), total, "replacing heads")
            size = 1 if self._mixed else copies
            found += self._run(batch, before, self.plans[len(found) : len(found) + size], rows or 0)
        progress(total, total, "replacing heads")
        return found

    def _checked(self, batch: Batch, before: Predicted, copies: int, rows: int) -> list[Changes]:
        """The first replacements together with an unchanged copy; empty if copies influence each other."""
        try:
            *found, control = self._run(batch, before, [*self.plans[: copies - 1], None], rows)
        except (CopiesMixed, RuntimeError, ValueError):
            found, self._mixed = [], True
        else:
            self._mixed = not _unchanged(control, before)
            flips = control.get("changed", torch.zeros(1)).nanmean()
            self._by_rounding = max(self._by_rounding, float(flips))
        return [] if self._mixed else found

    def _run(
        self, batch: Batch, before: Predicted, plans: Sequence[Replacement | None], rows: int
    ) -> list[Changes]:
        """The changes of each copy."""
        with self._replacer.replacing(plans, rows):
            after = self._reader.run(copies_of(batch, len(plans), rows) if len(plans) > 1 else batch)
        if after.values.shape != (len(before.values) * len(plans), *before.values.shape[1:]):
            raise CopiesMixed(f"the outputs have shape {list(after.values.shape)}: not {len(plans)} copies")
        return [self._changes(before, values) for values in after.values.chunk(len(plans))]

    def _changes(self, before: Predicted, values: Tensor) -> Changes:
        after = scored(Predicted(values, before.targets, before.sentences), self._reader.task)
        return {name: numbers.cpu() for name, numbers in difference(self._before, after).items()}


def _copies(before: Predicted) -> int:
    """How many copies of a batch run together."""
    positions, width = max(1, len(before.values)), before.values.shape[-1]
    return max(1, min(POSITIONS // positions, LOGITS // (positions * width)))


def _unchanged(changes: Changes, before: Predicted) -> bool:
    """Whether a copy in which nothing was replaced gave what the batch itself gave, up to rounding."""
    allowed = _SAME.get(before.values.dtype, 0.05)
    found = [changes[name] for name in ("divergence", "moved") if name in changes]
    return all(bool((numbers.nan_to_num(0) <= allowed).all()) for numbers in found)
