"""What each attention head does: attend to one position, average over many, or something between.

In the saturated network a head spreads its weight evenly over the positions that
tie for the largest score. The number of those positions distinguishes argmax heads
from mean heads. The soft network, as trained, is described beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from normscope.errors import UsageError
from normscope.network.running.batches import Batches, as_batches
from normscope.network.running.scaling import power_of_two
from normscope.network.settling.full_text import Limit, Measured, Request, layer_of, measure, plain_warnings
from normscope.network.settling.head_types import HEAD_TYPES, HeadEvidence, HeadKey, HeadType, HeadTypes
from normscope.network.watching.block_lists import attention_note
from normscope.option_checks import check_kind, check_progress
from normscope.progress import Progress, silent
from normscope.rows import HeadMeasures
from normscope.table import Table, Tabular


@dataclass(frozen=True)
class Head(HeadMeasures):
    """One head; every number is a mean over the queries of real tokens.

    Saturated network: `positions` attended to, their standard deviation, `split` (the
    probability that there are several), `share` of the visible positions.
    Soft network: `effective` positions exp(entropy), `largest` weight, mean
    `distance` between query and key, weight on the `first` token.
    `margin` is how far `split` and `share` could move before `type` changes. `attends` says where the head
    attends, `overlap` and `output` how well the saturated head agrees with the trained one.

    >>> numbers = {"positions_deviation": 0.0, "split": 0.0, "share": 0.2, "effective": 3.1, "first": 0.1}
    >>> head = ns.Head("h.0.attn", 1, 3, "argmax", 0.1, positions=1.0, largest=0.6, distance=2.0, **numbers)
    >>> head.type, head.positions
    ('argmax', 1.0)
    """

    type: HeadType


@dataclass(frozen=True, repr=False)
class Heads(Tabular):
    """All heads of a model, and warnings for the reader.

    >>> import torch
    >>> import normscope as ns
    >>> model = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> result = ns.heads(model, torch.randn(4, 6, 8))
    >>> len(result.heads), sum(result.count().values()), len(result.table)
    (2, 2, 2)
    """

    heads: tuple[Head, ...]
    warnings: tuple[str, ...] = ()

    def count(self) -> dict[HeadType, int]:
        """The number of heads of each type."""
        return {kind: sum(head.type == kind for head in self.heads) for kind in HEAD_TYPES}

    def strongest(self, kind: HeadType, count: int = 3) -> list[Head]:
        """The heads of a type with the widest margin, at most `count` of them."""
        if kind not in HEAD_TYPES:
            raise UsageError(f"kind must be one of {', '.join(HEAD_TYPES)}; got {kind!r}")
        return sorted((h for h in self.heads if h.type == kind), key=lambda h: -h.margin)[:count]

    @property
    def table(self) -> Table:
        """One row per head."""
        names = [name for name in Head.__dataclass_fields__ if name != "attends"]
        return Table.from_rows(names, ([getattr(head, name) for name in names] for head in self.heads))

    @property
    def messages(self) -> Sequence[str]:
        """The warnings."""
        return self.warnings


def heads(
    model: nn.Module,
    batches: Batches,
    *,
    scale: float | None = None,
    types: HeadTypes = HeadTypes(),
    blocks: str | None = None,
    progress: Progress = silent,
) -> Heads:
    """Describe every attention head, in the network as it is and in the saturated one.

    The scale of the saturated network is chosen by climbing on a few sentences, as in `saturation`, or given
    as `scale`, a power of two. Attention maps are processed by blocks of queries, one layer at a time; only
    visible positions and real tokens count. `model` and `batches` are as in `saturation`; `types` has the
    thresholds between the types of heads; `blocks` is as in `saturation`; `progress` is called with
    (done, total, note).

    >>> import torch
    >>> import normscope as ns
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> result = ns.heads(model, torch.randn(4, 6, 8))
    >>> [(head.type, round(head.effective, 1)) for head in result.heads]
    [('argmax', 5.5), ('argmax', 5.5)]
    """
    check_kind("types", types, HeadTypes)
    check_progress(progress)
    if scale is not None and power_of_two(scale) <= 0:
        raise UsageError(f"scale must be a power of two above 1, such as 1024; got {scale!r}")
    limit = Limit() if scale is None else Limit((scale,))
    return heads_of(
        measure(model, as_batches(batches), Request(limit, types, layers=False, blocks=blocks), progress)
    )


def heads_of(found: Measured) -> Heads:
    """Every head from passes that are done."""
    patterns = found.patterns()
    rows = tuple(_head(key, evidence, found, patterns) for key, evidence in found.evidence().items())
    warnings = (*found.plan.remarks, *plain_warnings(found), *_warnings(rows, found))
    return Heads(rows, warnings)


def _head(
    key: HeadKey, evidence: HeadEvidence, found: Measured, patterns: Mapping[HeadKey, dict[str, Any]]
) -> Head:
    name, head = key
    soft = found.soft(key)
    agreement = found.plan.agreement.get(key)
    kind, margin = found.type_of(key, evidence)
    settles_at = found.head_settles_at(key)
    return Head(
        module=name,
        layer=layer_of(name, found.lists),
        head=head,
        type=kind,
        margin=margin,
        positions=evidence.parts["positions"],
        positions_deviation=evidence.deviation,
        split=evidence.parts["split"],
        share=evidence.parts["share"],
        effective=soft["effective"],
        largest=soft["largest"],
        distance=soft["distance"],
        first=soft["first"],
        converged=settles_at is not None and kind != "undecided",
        settles_at=settles_at if kind != "undecided" else None,
        unsettled=1 - evidence.parts["settled"],
        overlap=agreement.overlap if agreement else None,
        output=agreement.output if agreement else None,
        attends=patterns.get(key),
    )


def _warnings(rows: Sequence[Head], found: Measured) -> Iterator[str]:
    observer = found.heads.observer
    if note := attention_note(found.lists):
        yield f"heads: {note}"
    unknown = [row for row in rows if row.type == "undecided"]
    if unknown:
        yield (
            f"{len(unknown)} of {len(rows)} heads cannot be decided: at every scale that the numbers allow, "
            "too many of their queries are neither clearly on one position nor clearly tied over several"
        )
    if observer.mask_overtaken:
        yield (
            f"in {len(observer.mask_overtaken)} attention modules (such as {min(observer.mask_overtaken)}) "
            "the scaled scores are larger than the mask, which is a finite number such as -1e9: the "
            "saturated network sees hidden positions; mask with -inf"
        )
