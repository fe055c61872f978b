"""A record as the alarms read it: summed over the scopes, the layers and the modules outside layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normscope.anatomy import scope_words
from normscope.live.alarms.record_summary import ModelParts, NonFiniteValues, RecordSummary
from normscope.live.writing.journal_entries import COLUMNS, Record, stacked
from normscope.run import TensorRow
from normscope.theory.measures.measures import GROUPINGS
from normscope.words import OUTSIDE, by_layer

Array = NDArray[np.float64]

SUMMED = ("sumsq", "dot", "sumsq_delta", "grad_sumsq", "lr")
MOST_MODULES = 256
"""Modules outside layers that are judged one by one; more of them are judged together."""
GRADIENTS = COLUMNS.index("gradients")
NONFINITE = [COLUMNS.index(name) for name in ("nonfinite", "grad_nonfinite")]


class AlarmParts:
    """Which tensors belong to which part of the model, prepared so that records are summed in a few calls."""

    def __init__(
        self, tensors: Sequence[TensorRow], scopes: Mapping[str, NDArray[np.int64]], optimizers: int = 1
    ) -> None:
        """`scopes` gives the positions of the tensors in each scope."""
        self._names = [tensor.name for tensor in tensors]
        counted = [i for i, tensor in enumerate(tensors) if tensor.tied_to is None]
        layer = {i: GROUPINGS["layer"](tensors[i]) for i in counted}
        outside = {_module(tensors[i]) for i in counted if layer[i] == OUTSIDE}
        by_module = len(outside) <= MOST_MODULES
        group = {
            i: f"layer {layer[i]}"
            if layer[i] != OUTSIDE
            else (_module(tensors[i]) if by_module else "what is outside layers")
            for i in counted
        }
        layers = {group[i] for i in counted if layer[i] != OUTSIDE}
        names = by_layer(layers) + sorted(set(group.values()) - layers)
        self._parts = ModelParts(
            tuple(scope_words(scope) for scope in scopes),
            tuple(names),
            np.array([name in layers for name in names], dtype=bool),
            optimizers,
        )
        inside = [set(chosen.tolist()) for chosen in scopes.values()]
        # A unit is a set of tensors that are in the same group and in the same scopes.
        unit = {i: (group[i], tuple(i in each for each in inside)) for i in counted}
        units = sorted(set(unit.values()))
        rank = {each: number for number, each in enumerate(units)}
        order = sorted(counted, key=lambda i: rank[unit[i]])
        self._order = np.array(order, dtype=np.int64)
        self._starts = np.searchsorted([rank[unit[i]] for i in order], np.arange(len(units)))
        member = [[float(member[k]) for _, member in units] for k in range(len(inside))]
        member += [[float(own == name) for own, _ in units] for name in names]
        self._member = np.array(member).reshape(len(member), len(units))
        counts = np.add.reduceat(np.ones((len(order), len(SUMMED))), self._starts, axis=0)
        self._complete = self._member @ counts
        self._none_frozen = np.zeros(len(member), dtype=bool)
        self._columns = np.array([COLUMNS.index(name) for name in SUMMED])

    def summaries(self, records: Sequence[Record]) -> list[RecordSummary]:
        """The records by parts; several cost little more than one."""
        values = stacked(records)
        chosen = values[:, self._order[:, None], self._columns]
        missing = np.isnan(chosen)
        present = np.broadcast_to(self._complete, (len(records), *self._complete.shape))
        if missing.any():
            chosen = np.where(missing, 0.0, chosen)
            present = self._member @ np.add.reduceat((~missing).astype(np.float64), self._starts, axis=1)
        with np.errstate(all="ignore"):  # an infinite learning rate, a part without values
            sums = self._member @ np.add.reduceat(chosen, self._starts, axis=1)
            sums = np.where(present == 0, np.nan, sums)
            sumsq, dot, delta, gradient, lr = np.moveaxis(sums, 2, 0)
            before = np.maximum(sumsq - 2 * dot - delta, 0.0)
            alignment = dot / np.sqrt(before * delta)
            rates = lr / present[:, :, 4]
            growth = -0.5 * np.log(before / sumsq)
            norms, gradients = np.sqrt(sumsq), np.sqrt(gradient)
            prepared = self._prepared(norms, gradients, alignment)
        bad: list[bool] = np.atleast_1d(np.any(values[:, :, NONFINITE] > 0, axis=(1, 2))).tolist()
        known: list[bool] = np.atleast_1d(np.any(values[:, :, GRADIENTS] != 0, axis=1)).tolist()
        found = [
            RecordSummary(
                record.step, self._parts, norms[i], gradients[i], alignment[i], rates[i],
                growth[i], self._frozen(record),
                nonfinite=self._nonfinite(record) if bad[i] else None,
                forward=record.forward,
                gradients_known=known[i],
            )
            for i, record in enumerate(records)
        ]  # fmt: skip
        for summary, (log_norm, by_scope, share) in zip(found, prepared, strict=True):
            vars(summary).update(log_norm=log_norm, by_scope=by_scope, gradient_share=share)
        return found

    def _prepared(self, norms: Array, gradients: Array, alignment: Array) -> Iterator[tuple[Any, ...]]:
        """The cached properties of the summaries, for all records at once."""
        scopes = len(self._parts.scopes)
        log_norm, log_gradient = np.log(norms), np.log(gradients[:, :scopes])
        ratios = (log_gradient - log_norm[:, :scopes]).tolist()
        by_scope = zip(log_gradient[:, -1].tolist(), ratios, alignment[:, :scopes].tolist(), strict=True)
        of_groups = np.nan_to_num(gradients[:, scopes:])
        largest = of_groups.max(axis=1, initial=0.0)
        shares = np.log(of_groups / largest[:, None])
        known = [share if any_gradient else None for share, any_gradient in zip(shares, largest, strict=True)]
        return zip(log_norm, by_scope, known, strict=True)

    def _frozen(self, record: Record) -> NDArray[np.bool_]:
        """The parts of which every tensor is frozen."""
        if not record.frozen:
            return self._none_frozen
        free = np.ones(len(self._names))
        free[list(record.frozen)] = 0.0
        found: NDArray[np.bool_] = self._member @ np.add.reduceat(free[self._order], self._starts) == 0
        return found

    def _nonfinite(self, record: Record) -> NonFiniteValues:
        own, gradients = (np.nan_to_num(record.values[:, i]) for i in NONFINITE)
        reached = list(dict.fromkeys(record.backward_order))
        rest = [i for i in range(len(self._names)) if i not in set(reached)]
        bad = [i for i in (*reached, *rest) if gradients[i]]
        before = reached.index(bad[0]) if bad and bad[0] in reached else 0
        return NonFiniteValues(
            [(self._names[i], int(own[i])) for i in np.flatnonzero(own)],
            [(self._names[i], int(gradients[i])) for i in bad],
            before,
        )


def _module(tensor: TensorRow) -> str:
    return tensor.name.rpartition(".")[0] or tensor.name
