"""How well the saturated network does the task of a run, beside `evaluation`, on the same held-out data."""

from __future__ import annotations

from torch import nn

from normscope.lab.data.dataset import Dataset
from normscope.lab.data.tasks import TaskData
from normscope.lab.training.held_out import has_labels, held_out_batches, task_name
from normscope.network.predicting.task import NetworkTask, saturated_task


def evaluate_saturated(
    model: nn.Module, data: Dataset, batches: int, size: int, scale: float = 2.0**10
) -> dict[str, float]:
    """Return the saturated network's numbers on the batches of `evaluate`.

    The names are those of `evaluate` after `saturated_` (attention as it is at the scale) and
    `saturated_exact_` (the exact limit of attention), and `agreement`, the share of positions where it
    predicts what the model predicts. The loss is that of logits rescaled to the size of the model's.
    For targets that are not tokens there is nothing.
    """
    device = next(model.parameters()).device
    found: dict[str, float] = {}
    for split, kept in data.evaluations(batches, size).items():
        if not has_labels(data, kept[0]):
            return {}
        result = saturated_task(
            model, held_out_batches(data, kept, device), scale=scale, task=task_name(data)
        )
        words = isinstance(data, TaskData)
        found |= _named(f"saturated_{split}", result["scaled"], words)
        found |= _named(f"saturated_exact_{split}", result["exact"], words)
    return found


def _named(prefix: str, row: NetworkTask, words: bool) -> dict[str, float]:
    numbers = {"loss": row.rescaled_loss, "accuracy": row.accuracy, "agreement": row.agreement}
    if words:
        numbers["sequence_accuracy"] = row.sentence_accuracy
    return {f"{prefix}_{name}": value for name, value in numbers.items() if value is not None}
