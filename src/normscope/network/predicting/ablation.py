"""What a head matters: how loss and predictions change when it is replaced.

By its saturated self (the softmax of this head replaced by its limit, everything else as it is), by
the mean of its output over the text, or by zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from normscope.errors import UsageError
from normscope.network.predicting.head_replacement import ABLATIONS, Ablation, HeadOutputs, Replacement
from normscope.network.predicting.predictions import PredictionReader, TaskName
from normscope.network.predicting.replacement_passes import ReplacementPasses
from normscope.network.running.batches import Batches, as_batches, sample
from normscope.network.running.eval_mode import evaluating
from normscope.network.running.passes import part_of
from normscope.network.settling.full_text import layer_of
from normscope.network.watching.block_lists import BlockList, block_of, find_blocks
from normscope.option_checks import check_kind, check_progress
from normscope.progress import Progress, silent
from normscope.table import Table, Tabular
from normscope.words import some


@dataclass(frozen=True)
class HeadAblation:
    """One head replaced, and what that changes; every number is a mean over positions.

    `kind` is what replaces it: saturated, mean or zero. `loss_change` is the loss afterwards minus that of
    the model, in nats, with its standard error over sentences. `changed` is the share of positions whose
    top prediction is another, `divergence` the mean KL divergence from the model's own distribution in
    nats. A model without an output head has `turned`, 1 − cosine of its output states with those of the
    model, and `moved`, the size of the change relative to the states, instead.

    >>> ns.HeadAblation("h.0.attn", 1, 3, "zero", loss_change=0.2, changed=0.1, divergence=0.3).importance
    0.3
    """

    module: str
    layer: int
    head: int
    kind: Ablation
    loss_change: float | None = None
    loss_change_error: float | None = None
    changed: float | None = None
    divergence: float | None = None
    turned: float | None = None
    moved: float | None = None

    @property
    def importance(self) -> float:
        """How much the head matters: the divergence, or for a model without an output head `moved`."""
        found = self.moved if self.divergence is None else self.divergence
        return 0.0 if found is None else found


@dataclass(frozen=True, repr=False)
class Ablations(Tabular):
    """Every head replaced in turn, the task that was measured, and the model's own loss.

    `task` is what the model predicts: next-token, tokens, classes, sets or states (see
    docs/saturation.md); `loss` is None if nothing says what is right; `positions` is how many positions
    were compared.

    >>> import torch
    >>> import normscope as ns
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> found = ns.ablations(model, torch.randn(4, 6, 8), kinds=["zero"])
    >>> found.task, found.positions, [row.head for row in found.strongest("zero", 2)]
    ('states', 24, [1, 0])
    """

    heads: tuple[HeadAblation, ...]
    task: TaskName
    positions: int
    loss: float | None = None
    warnings: tuple[str, ...] = ()

    def strongest(self, kind: Ablation, count: int = 10) -> list[HeadAblation]:
        """The heads that matter most when replaced by `kind`, at most `count` of them."""
        if kind not in ABLATIONS:
            raise UsageError(f"kind must be one of {', '.join(ABLATIONS)}; got {kind!r}")
        return sorted((row for row in self.heads if row.kind == kind), key=_by_importance)[:count]

    @property
    def table(self) -> Table:
        """One row per head and kind."""
        names = list(HeadAblation.__dataclass_fields__)
        return Table.from_rows(names, ([getattr(row, name) for name in names] for row in self.heads))

    @property
    def messages(self) -> Sequence[str]:
        """The warnings."""
        return self.warnings


def _by_importance(row: HeadAblation) -> tuple[bool, float]:
    """Most important first; NaN, which is an output that overflowed, before all."""
    return row.importance == row.importance, -row.importance


def ablations(
    model: nn.Module,
    batches: Batches,
    *,
    kinds: Sequence[Ablation] = ABLATIONS,
    heads: Sequence[tuple[str, int]] | None = None,
    task: TaskName | None = None,
    progress: Progress = silent,
) -> Ablations:
    """Replace each attention head in turn, and measure how loss and predictions change.

    `kinds` are what heads are replaced by: "saturated" (this head's softmax becomes its limit), "mean" (its
    mean output over the real tokens of all batches) and "zero". `heads` are (module, index) pairs, as
    `ns.heads` names them; all by default. `model` and `batches` are as in `saturation`; `labels` in a batch
    say what is right, otherwise a language model is judged by the tokens themselves. `task` is
    recognised from the model's output (next-token, tokens, classes, sets or states) unless it is given.
    `progress` is called with (done, total, note).

    >>> import torch
    >>> import normscope as ns
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> found = ns.ablations(model, torch.randn(4, 6, 8))
    >>> len(found.heads), all(row.moved > 0 for row in found.heads)
    (6, True)
    """
    check_progress(progress)
    chosen = _checked_kinds(kinds)
    kept = as_batches(batches)
    with evaluating(model):
        lists = find_blocks(model, sample(kept))
        outputs = HeadOutputs(model, lambda module: _is_decoder(lists, module))
        reader = PredictionReader(model, task)
        for batch in kept:
            with outputs.learning(batch):
                reader.run(batch)
        means = outputs.means() if "mean" in chosen else {}
        plans = list(_plans(outputs, means, chosen, heads))
        passes = ReplacementPasses(model, plans, means, reader)
        for number, batch in enumerate(kept):
            passes.add(batch, part_of(progress, number, len(kept)))
    rows = tuple(_rows(passes, lists))
    warnings = (*_unavailable(outputs, means, chosen), *reader.warnings, *passes.remarks(), *_broken(rows))
    return Ablations(rows, reader.task, passes.positions, passes.loss, warnings)


def _rows(passes: ReplacementPasses, lists: Sequence[BlockList]) -> Iterator[HeadAblation]:
    found = passes.means()
    for number, plan in enumerate(passes.plans):
        numbers = {name: means[number].value for name, means in found.items()}
        if "loss_change" in found:
            numbers["loss_change_error"] = found["loss_change"][number].error
        yield HeadAblation(plan.module, layer_of(plan.module, lists), plan.head, plan.kind, **numbers)


def _broken(rows: Sequence[HeadAblation]) -> list[str]:
    if all(row.importance == row.importance for row in rows):
        return []
    return ["some outputs are NaN or infinite when a head is replaced: those numbers are missing"]


def _checked_kinds(kinds: Sequence[Ablation]) -> tuple[Ablation, ...]:
    check_kind("kinds", kinds, (list, tuple), "a list of saturated, mean, zero")
    unknown = [kind for kind in kinds if kind not in ABLATIONS]
    if unknown or not kinds:
        raise UsageError(
            f"kinds must be some of {', '.join(ABLATIONS)}; got {unknown[0] if unknown else kinds!r}"
        )
    return tuple(dict.fromkeys(kinds))


def _is_decoder(lists: Sequence[BlockList], module: str) -> bool:
    position = block_of(lists, module)
    return position is not None and position[0].decoder


def _plans(
    outputs: HeadOutputs,
    means: dict[str, Tensor],
    kinds: Sequence[Ablation],
    heads: Sequence[tuple[str, int]] | None,
) -> Iterator[Replacement]:
    known = [(name, head) for name, count in outputs.heads.items() for head in range(count)]
    wanted = known if heads is None else [(str(name), int(head)) for name, head in heads]
    if missing := [pair for pair in wanted if pair not in known]:
        there = some([f"{name} {head}" for name, head in known])
        raise UsageError(f"heads has {missing[0]}, but the model's heads are {there}")
    for name, head in wanted:
        yield from (Replacement(name, head, kind) for kind in kinds if kind != "mean" or name in means)


def _unavailable(outputs: HeadOutputs, means: dict[str, Tensor], kinds: Sequence[Ablation]) -> list[str]:
    without = [name for name in outputs.heads if name not in means]
    if "mean" not in kinds or not without:
        return []
    return [
        f"mean is not available for {some(without)}: the output of the heads, weights times values, was not "
        "recognised; load the model with attn_implementation='sdpa'"
    ]
