"""What a study measures of a model's predictions: replaced heads, and the task in the saturated network."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from normscope.errors import ScaleOverflow
from normscope.network.loading.models import StudiedModel
from normscope.network.predicting.ablation import ablations
from normscope.network.predicting.head_replacement import Ablation
from normscope.network.predicting.task import saturated_task
from normscope.network.running.inputs import Corpus
from normscope.network.running.passes import part_of
from normscope.progress import Progress
from normscope.rows import step_key
from normscope.run import Run

TASK_KIND, ABLATION_KIND = "saturated-task", "ablation"
Document = dict[str, Any]


@dataclass(frozen=True)
class PredictionOptions:
    """Whether the task is measured in the saturated network, and what heads are replaced by."""

    task: bool = False
    ablate: tuple[Ablation, ...] = ()

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What a measured step depends on; nothing if nothing is asked for."""
        return {name: value for name, value in (("task", self.task), ("ablate", list(self.ablate))) if value}


@dataclass(frozen=True)
class StepPredictions:
    """The documents of one step, as they are stored and printed; None for what was not asked for."""

    task: Document | None = None
    ablations: Document | None = None
    warnings: tuple[str, ...] = ()


def measure_predictions(
    model: StudiedModel,
    loaded: tuple[nn.Module, Corpus],
    options: PredictionOptions,
    scale: float,
    progress: Progress,
) -> StepPredictions:
    """Measure what `options` ask for, on the model with its output head, which is loaded only for this."""
    if not options.fingerprint:
        return StepPredictions()
    module, corpus = model.load_headed() if model.load_headed is not None else loaded
    place = {"step": model.step, "stage": model.stage}
    warnings = [text for text in corpus.warnings if text not in loaded[1].warnings]
    task = ablated = None
    if options.task:
        try:
            found = saturated_task(module, corpus.batches, scale=scale, progress=part_of(progress, 0, 2))
            warnings += found.warnings
            task = place | _document(found)
        except ScaleOverflow as error:
            warnings.append(f"the task was not measured in the saturated network: {error}")
    if options.ablate:
        result = ablations(module, corpus.batches, kinds=options.ablate, progress=part_of(progress, 1, 2))
        warnings += result.warnings
        ablated = place | _document(result)
    return StepPredictions(task, ablated, tuple(dict.fromkeys(warnings)))


def _document(result: Any) -> Document:
    """A result as JSON, without its warnings; NaN and infinities become null."""
    fields = {name: value for name, value in asdict(result).items() if name != "warnings"}
    return {name: _finite(value) for name, value in fields.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def save_predictions(run: Run, model: StudiedModel, found: StepPredictions) -> None:
    """Store the documents of a step in the run file."""
    for kind, document in ((TASK_KIND, found.task), (ABLATION_KIND, found.ablations)):
        if document is not None:
            run.set_artifact(kind, step_key(model.stage, model.step), document)
