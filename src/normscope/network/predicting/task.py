"""The task in the saturated network: does it still predict what the model predicts?

The saturated network f(x; cθ) is run beside the model on the same text: with its softmax as it is at the
scale c ("scaled"), and with the exact limit of softmax ("exact").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from normscope.errors import UsageError
from normscope.network.measuring.saturated import saturated
from normscope.network.predicting.comparison import (
    Scored,
    SentenceSums,
    all_right,
    difference,
    quality,
    rescaled,
    scored,
)
from normscope.network.predicting.predictions import Predicted, PredictionReader, TaskName, labels_of
from normscope.network.running.batches import Batch, Batches, as_batches
from normscope.network.running.eval_mode import evaluating
from normscope.network.running.scaling import check_scale, power_of_two
from normscope.option_checks import check_progress
from normscope.progress import Progress, silent
from normscope.table import Table, Tabular

Network = Literal["model", "scaled", "exact"]
"""The model as it is, or the saturated network with scaled or exact attention."""
NETWORKS: tuple[Network, ...] = ("model", "scaled", "exact")


@dataclass(frozen=True)
class NetworkTask:
    """How well one network does the task, and how often it agrees with the model.

    `network` is model, scaled or exact. `loss` (nats) and `accuracy` are means over positions,
    `sentence_accuracy` is the share of sentences without a mistake; None if nothing says what is right.
    `agreement` is the share of positions with the model's own top prediction, `divergence` the mean KL
    divergence from the model in nats. The logits of a saturated network grow with the scale, and loss and
    divergence with them; accuracy and agreement do not. `rescaled_loss` is the loss of logits that are
    multiplied by one number per batch, so that they are as large as the model's. Models without an
    output head have `cosine` and `moved` of their states instead. Each `…_error` is a standard error
    over sentences.

    >>> ns.NetworkTask("scaled", accuracy=0.5, agreement=0.6).agreement
    0.6
    """

    network: Network
    loss: float | None = None
    loss_error: float | None = None
    rescaled_loss: float | None = None
    rescaled_loss_error: float | None = None
    accuracy: float | None = None
    accuracy_error: float | None = None
    sentence_accuracy: float | None = None
    agreement: float | None = None
    agreement_error: float | None = None
    divergence: float | None = None
    divergence_error: float | None = None
    cosine: float | None = None
    cosine_error: float | None = None
    moved: float | None = None
    moved_error: float | None = None


@dataclass(frozen=True, repr=False)
class SaturatedTask(Tabular):
    """The task in the model and in its saturated network.

    `task` is what the model predicts: next-token, tokens, classes, sets or states.

    >>> import torch
    >>> import normscope as ns
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> found = ns.saturated_task(model, torch.randn(4, 6, 8))
    >>> found.task, [row.network for row in found.networks], found.positions
    ('states', ['model', 'scaled', 'exact'], 24)
    """

    networks: tuple[NetworkTask, ...]
    task: TaskName
    positions: int
    sentences: int
    scale: float
    warnings: tuple[str, ...] = ()

    def __getitem__(self, network: Network) -> NetworkTask:
        if network not in NETWORKS:
            raise UsageError(f"network must be one of {', '.join(NETWORKS)}; got {network!r}")
        return next(row for row in self.networks if row.network == network)

    @property
    def table(self) -> Table:
        """One row per network."""
        names = list(NetworkTask.__dataclass_fields__)
        return Table.from_rows(names, ([getattr(row, name) for name in names] for row in self.networks))

    @property
    def messages(self) -> Sequence[str]:
        """The warnings."""
        return self.warnings


def saturated_task(
    model: nn.Module,
    batches: Batches,
    *,
    scale: float = 2.0**10,
    task: TaskName | None = None,
    progress: Progress = silent,
) -> SaturatedTask:
    """Loss, accuracy and agreement of the saturated network against the model, on the same batches.

    Three passes: the model, `saturated(model)` at `scale`, a power of two, and the same with
    attention="exact". `model` and `batches` are as in `saturation`; `labels` in a batch say what is right,
    otherwise a language model is judged by the tokens themselves. `task` is recognised from the model's
    output (next-token, tokens, classes, sets or states) unless it is given. `progress` is called with
    (done, total, note).

    >>> import torch
    >>> import normscope as ns
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> found = ns.saturated_task(model, torch.randn(4, 6, 8))
    >>> found["model"].cosine, 0 < found["scaled"].cosine < 1
    (1.0, True)
    """
    check_progress(progress)
    if power_of_two(scale) < 0:
        raise UsageError(f"scale must be a power of two of at least 1, such as 1024; got {scale!r}")
    kept = as_batches(batches)
    check_scale(model, scale)
    reader = PredictionReader(model, task)
    sums = {network: _TaskSums() for network in NETWORKS}
    visible = False
    with evaluating(model):
        for number, batch in enumerate(kept):
            before = reader.run(batch)
            known = scored(before, reader.task)
            visible |= reader.task == "tokens" and labels_of(batch) is None
            for part, network in enumerate(NETWORKS):
                after = before if network == "model" else _run(model, reader, batch, network, scale)
                sums[network].add(known, after, reader.task)
                progress(3 * number + part + 1, 3 * len(kept), f"the task in the {network} network")
    rows = tuple(sums[network].row(network) for network in NETWORKS)
    warnings = (*reader.warnings, *_remarks(rows, visible))
    first = sums["model"]
    return SaturatedTask(rows, reader.task, first.positions, first.count, float(scale), warnings)


def _run(
    model: nn.Module, reader: PredictionReader, batch: Batch, network: Network, scale: float
) -> Predicted:
    with saturated(model, attention="exact" if network == "exact" else "scaled", scale=scale):
        return reader.run(batch)


def _remarks(rows: Sequence[NetworkTask], visible: bool) -> Iterator[str]:
    if visible:
        yield (
            "without labels, accuracy and loss are those of tokens the model sees: mask some, and give labels"
        )
    broken = [row.network for row in rows if _broken(row)]
    if broken:
        yield (
            f"the outputs of the {' and the '.join(broken)} network are NaN or infinite at some positions, "
            "so its numbers are missing: use float64 (--dtype float64) or a smaller scale"
        )


def _broken(row: NetworkTask) -> bool:
    numbers = (row.agreement, row.cosine)
    return any(number is not None and number != number for number in numbers)


class _TaskSums:
    """Sums of one network over the batches."""

    def __init__(self) -> None:
        self._sums: dict[str, SentenceSums] = {}
        self._right: list[Tensor] = []
        self._sentences: list[Tensor] = []
        self.positions = 0
        self.count = 0

    def add(self, before: Scored, after: Predicted, task: TaskName) -> None:
        """Add the predictions for one batch, beside those of the model."""
        other = before if after.values is before.values else scored(after, task)
        found, changes = quality(other), difference(before, other)
        if other is before and found:
            found["rescaled_loss"] = found["loss"]
        elif found:
            found["rescaled_loss"] = quality(scored(rescaled(before, after, task), task))["loss"]
        if "changed" in changes:
            found |= {"agreement": 1 - changes["changed"], "divergence": changes["divergence"]}
        else:
            found |= {"cosine": 1 - changes["turned"], "moved": changes["moved"]}
        rows = int(after.sentences.max()) + 1 if len(after.sentences) else 0
        for name, values in found.items():
            self._sums.setdefault(name, SentenceSums()).add(values, after.sentences, rows)
        if "accuracy" in found:
            self._right.append(found["accuracy"])
            self._sentences.append(after.sentences)
        self.positions += len(after.sentences)
        self.count += len(set(after.sentences.tolist()))

    def row(self, network: Network) -> NetworkTask:
        """The means of this network."""
        means = {name: sums.mean() for name, sums in self._sums.items()}
        numbers = {name: mean.value for name, mean in means.items()}
        numbers |= {f"{name}_error": mean.error for name, mean in means.items()}
        if self._right:
            numbers["sentence_accuracy"] = all_right(self._right, self._sentences)
        return NetworkTask(network, **numbers)
