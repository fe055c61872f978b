"""How well the saturated head agrees with the trained one, on the same tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from normscope.network.attention.attention_maps import CallKey, query_mask
from normscope.network.attention.head_outputs import SeenCall, watch_outputs
from normscope.network.running.batches import Batch
from normscope.network.running.passes import PLAIN

QUERIES = 256
"""Queries of each sequence that are compared, evenly spaced; all of a shorter one."""


@dataclass(frozen=True)
class Agreement:
    """The saturated head beside the trained one, as means over the queries of real tokens.

    `overlap` is Σ min(a, b) of the two rows of weights: 1 if they are equal, 0 if they share nothing.
    `output` is the cosine of the two output vectors Σ weight · value. None if it is not known: the
    weights or outputs are not finite, or how the model computes the output was not seen.
    """

    overlap: float | None
    output: float | None


@dataclass
class _Sums:
    """Sums over queries, per head; `outputs` counts the queries whose two outputs are not zero."""

    queries: float = 0.0
    overlap: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    outputs: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    cosine: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    seen: bool = True


@dataclass(frozen=True)
class _PlainCall:
    """What is kept of a call in the plain network: some of its queries."""

    rows: Tensor
    counted: Tensor
    weights: Tensor
    outputs: Tensor | None


class AgreementWatcher:
    """Keeps the weights and outputs of the plain pass and compares a scaled one: for a small sample."""

    def __init__(self, model: nn.Module, decoder_path: Callable[[str], bool]) -> None:
        self._model, self._is_decoder = model, decoder_path
        self._plain: dict[tuple[int, CallKey], _PlainCall] = {}
        self._sums: dict[CallKey, _Sums] = {}

    def watching(self, number: int, batch: Batch, scale: float) -> AbstractContextManager[None]:
        """Observe one forward pass; the first batch of a pass begins a new comparison."""
        if number == 0:
            self._sums.clear()
        return self._watch(number, batch, scale)

    def forget(self) -> None:
        """Release the group's weights and outputs."""
        self._plain.clear()

    def result(self) -> dict[tuple[str, int], Agreement]:
        """The agreement of every head, by call and head."""
        found: dict[tuple[str, int], Agreement] = {}
        for (name, first), sums in self._sums.items():
            overlap, cosine = sums.overlap / sums.queries, sums.cosine / sums.outputs
            for head in range(len(overlap)):
                output = _finite(cosine[head]) if sums.seen else None
                found[name, first + head] = Agreement(_finite(overlap[head]), output)
        return found

    @contextmanager
    def _watch(self, number: int, batch: Batch, scale: float) -> Iterator[None]:
        def finished(seen: SeenCall) -> None:
            if scale == PLAIN:
                self._keep(number, batch, seen)
            elif (number, seen.call.key) in self._plain:
                self._compare(self._plain[number, seen.call.key], seen)

        with torch.no_grad(), watch_outputs(self._model, finished):
            yield

    def _keep(self, number: int, batch: Batch, seen: SeenCall) -> None:
        call = seen.call
        count = min(call.queries, QUERIES)
        rows = torch.linspace(0, call.queries - 1, count, dtype=torch.float64).round().long()
        rows = rows.to(seen.weights.device)
        counted = seen.sees[:, rows]
        mask = query_mask(batch, call, self._is_decoder(call.module))
        if mask is not None:
            counted = counted & mask.to(rows.device)[:, rows]
        outputs = None if seen.outputs is None else seen.outputs[:, :, rows].clone()
        self._plain[number, call.key] = _PlainCall(rows, counted, seen.weights[:, :, rows].clone(), outputs)

    def _compare(self, plain: _PlainCall, seen: SeenCall) -> None:
        sums = self._sums.setdefault(seen.call.key, _Sums())
        counted = plain.counted[:, None]
        sums.queries += float(counted.sum())
        common = torch.minimum(plain.weights, seen.weights[:, :, plain.rows]).sum(-1)
        sums.overlap = sums.overlap + _sum(common, counted)
        if plain.outputs is None or seen.outputs is None:
            sums.seen = False
            return
        cosine, defined = _cosine(plain.outputs, seen.outputs[:, :, plain.rows])
        sums.cosine = sums.cosine + _sum(cosine, counted & defined)
        sums.outputs = sums.outputs + _sum(torch.ones_like(cosine), counted & defined)


def _sum(values: Tensor, counted: Tensor) -> Tensor:
    return torch.where(counted, values.to(torch.float64), 0).sum((0, 2)).cpu()


def _cosine(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """The cosine of vectors of any size, and where it is defined: neither is zero; NaN if not finite."""
    units = []
    defined = torch.ones(one.shape[:-1], dtype=torch.bool, device=one.device)
    for vectors in (one.to(torch.float64), other.to(torch.float64)):
        largest = vectors.abs().amax(-1, keepdim=True)
        defined &= ~(largest[..., 0] == 0)
        units.append(vectors / largest)
    dot = (units[0] * units[1]).sum(-1)
    return dot / (units[0].norm(dim=-1) * units[1].norm(dim=-1)), defined


def _finite(value: Tensor) -> float | None:
    return float(value) if bool(value.isfinite()) else None
