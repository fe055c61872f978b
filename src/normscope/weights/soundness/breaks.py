"""Find checkpoints of other runs, exchanged labels and outliers in one series."""

from __future__ import annotations

import numpy as np

from normscope.remarks import Finding
from normscope.weights.soundness.detours import find_alternation, find_detours
from normscope.weights.soundness.exchanges import find_exchanges
from normscope.weights.soundness.findings import Array
from normscope.weights.soundness.norm_spikes import find_norm_spikes
from normscope.weights.soundness.pairs import PairTable
from normscope.weights.soundness.relatives import find_unrelated
from normscope.weights.soundness.splices import find_splices

FEWEST = 4  # checkpoints, below which only unrelated ones can be found


def find_breaks(table: PairTable, sumsq: Array) -> list[Finding]:
    """All findings about the way from checkpoint to checkpoint; `sumsq` is ‖θ‖² of each.

    Checkpoints that have nothing in common with the others are named first and left out of the rest.
    """
    if not np.nansum(table.squared) > 0:
        return []
    strangers, kept = find_unrelated(table)
    if len(kept) < FEWEST:
        return strangers
    found = [*strangers, *_off_the_path(table.only(kept))]
    named = {step for finding in found for step in finding.steps}
    off = {k for k, step in enumerate(table.steps.tolist()) if step in named}
    return [*found, *find_norm_spikes(table.steps, sumsq, off)]


def _off_the_path(table: PairTable) -> list[Finding]:
    alternating = find_alternation(table)
    if alternating:
        return alternating
    swapped = find_exchanges(table)
    known = {k for pair in swapped for k in pair}
    detours = find_detours(table, known)
    known |= set(detours)
    links = {j for k in known for j in (k, k + 1)}
    return [*swapped.values(), *detours.values(), *find_splices(table, links)]
