"""What `normscope saturate` and `normscope homogeneity` measure, on one model or a series."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from normscope.errors import UsageError
from normscope.network.loading.model_search import find_models
from normscope.network.loading.models import SeriesOptions, StudiedModel, StudyText
from normscope.network.measuring.attention_examples import attention_examples
from normscope.network.measuring.heads import Heads
from normscope.network.measuring.homogeneity import Curve, Homogeneity, homogeneity
from normscope.network.measuring.joint import SaturationAndHeads, saturation_and_heads
from normscope.network.measuring.layer_similarity import missing_pwcca
from normscope.network.measuring.lookahead import LookAhead, looks_ahead, meant_causal
from normscope.network.measuring.saturation import Saturation, saturation
from normscope.network.places.placement import Placement
from normscope.network.places.source_paths import is_build_reference
from normscope.network.recording import (
    StudyRecord,
    head_rows,
    record_curves,
    run_for_results,
    saturation_rows,
)
from normscope.network.running.baseline import random_like
from normscope.network.running.batches import token_count
from normscope.network.running.forward_failures import blaming_forward
from normscope.network.running.inputs import Corpus
from normscope.network.running.passes import part_of
from normscope.network.series_similarity import SeriesSimilarity, forget_stale_similarity, series_similarity
from normscope.network.settling.full_text import Limit
from normscope.network.step_predictions import (
    Document,
    PredictionOptions,
    StepPredictions,
    measure_predictions,
)
from normscope.network.study_ownership import claim_for_study
from normscope.progress import Progress, silent
from normscope.rows import HeadRow, SaturationRow, SimilarityRow, step_key
from normscope.run import Run


@dataclass(frozen=True)
class StudyConfig:
    """What to measure and how; `series` says how the steps are read.

    `blocks` is a pattern for the paths of the modules that are the layers, where they are not found.
    `command` is what the user typed, for the run file.
    """

    limit: Limit = field(default_factory=Limit)
    baseline: bool = True
    heads: bool = True
    run: Path | None = None
    placement: Placement = field(default_factory=Placement)
    series: SeriesOptions = field(default_factory=SeriesOptions)
    predictions: PredictionOptions = field(default_factory=PredictionOptions)
    similarity: bool = False
    blocks: str | None = None
    command: str = ""

    def fingerprint(self, text: StudyText) -> dict[str, Any]:
        """How a step is measured; if this changes, the step is measured again."""
        shown = {} if text.example is None else {"sentence": text.example}
        blocks = {} if self.blocks is None else {"blocks": self.blocks}
        return {
            **shown,
            "text": text.digest,
            "scales": list(self.limit.scales),
            "tolerance": self.limit.tolerance,
            "baseline": self.baseline,
            "heads": self.heads,
            "dtype": self.placement.dtype,
            **self.predictions.fingerprint,
            **blocks,
        }


@dataclass(frozen=True)
class StepLookAhead:
    """Whether the model of one step sees later tokens, and whether it is meant to be causal."""

    step: int
    causal: bool
    sees_future: bool
    change: float
    module: str | None
    stage: str = ""


@dataclass(frozen=True)
class Study:
    """Layers and heads of every step, and warnings for the reader."""

    layers: tuple[SaturationRow, ...]
    heads: tuple[HeadRow, ...]
    warnings: tuple[str, ...]
    look_ahead: tuple[StepLookAhead, ...] = ()
    tasks: tuple[Document, ...] = ()
    ablations: tuple[Document, ...] = ()
    similarity: tuple[SimilarityRow, ...] = ()

    @property
    def steps(self) -> list[int]:
        """The measured steps, in order."""
        return sorted({row.step for row in self.layers})


@dataclass(frozen=True)
class _StepResult:
    layers: list[SaturationRow]
    heads: list[HeadRow]
    warnings: list[str] = field(default_factory=list)
    look_ahead: list[StepLookAhead] = field(default_factory=list)
    predictions: StepPredictions = field(default_factory=StepPredictions)
    similarity: list[SimilarityRow] = field(default_factory=list)


def study(
    sources: Sequence[str], text: StudyText, config: StudyConfig = StudyConfig(), progress: Progress = silent
) -> Study:
    """Saturation, heads and look-ahead of every model behind `sources`.

    A series is written to `config.run`, "run.db" by default; a single model only if a file
    is given. Every step is written when it is done. A step that the file already has, with the
    same checkpoint, tokenizer and settings, is not measured again.
    """
    models = find_models(sources, text, config.placement, config.series)
    path = config.run or (Path("run.db") if len(models) > 1 else None)
    with run_for_results(path) as run:
        record = StudyRecord(run, config.fingerprint(text), config.command) if run else None
        if run is not None and record is not None:
            claim_for_study(run, sources, models, record.notes)
            forget_stale_similarity(run, models)
        similarity = _similarity(run, models, config, text)
        measurement = _StepMeasurement(config, record)
        parts = [part_of(progress, number, len(models)) for number in range(len(models))]
        results = [_step(measurement, similarity, *pair) for pair in zip(models, parts, strict=True)]
    return _combined(models, results)


def _similarity(
    run: Run | None, models: Sequence[StudiedModel], config: StudyConfig, text: StudyText
) -> SeriesSimilarity | None:
    if not config.similarity:
        return None
    settings = config.fingerprint(text)
    return series_similarity(run, models, {name: settings[name] for name in ("text", "dtype")})


def _step(
    measurement: _StepMeasurement, similarity: SeriesSimilarity | None, model: StudiedModel, part: Progress
) -> _StepResult:
    if similarity is None:
        return measurement.result(model, part)
    found = measurement.result(similarity.watched(model), part)
    rows, warnings = similarity.result(model)
    return replace(found, similarity=rows, warnings=[*found.warnings, *warnings])


def study_homogeneity(
    sources: Sequence[str],
    text: StudyText,
    config: StudyConfig = StudyConfig(),
    curve: Curve = Curve(),
    progress: Progress = silent,
) -> Homogeneity:
    """The degrees of one model; their curves go to the run file."""
    (first, *others) = find_models(sources, text, config.placement, config.series)
    if others:
        program = [source for source in sources[:1] if is_build_reference(source)]
        raise UsageError(
            f"{' '.join(sources)} is a series of {len(others) + 1} models: choose one of them, such as "
            f"{' '.join([*program, first.label])}"
        )
    with run_for_results(config.run) as run:
        if run is not None:
            claim_for_study(run, sources, [first])
        model, corpus = first.load()
        with blaming_forward(model, corpus.batches, first.label):
            found = homogeneity(model, corpus.batches, curve=curve, blocks=config.blocks, progress=progress)
        if run is not None:
            record_curves(run, found, curve.reference)
    return replace(found, warnings=(*first.remarks, *corpus.warnings, *found.warnings))


class _StepMeasurement:
    """Measures one model after the other, or reads what the run file already has."""

    def __init__(self, config: StudyConfig, record: StudyRecord | None) -> None:
        self._config, self._record = config, record
        self._baselines: dict[Hashable, dict[str, float]] = {}

    def result(self, model: StudiedModel, progress: Progress) -> _StepResult:
        """The rows of one model, from the run file if it is done."""
        note = self._record.note(model) if self._record else {}  # before loading: the files may change
        if self._record and self._record.is_done(model, note):
            warnings, ahead = self._record.remarks(model)
            found = [StepLookAhead(**entry) for entry in ahead]
            predicted = self._record.predictions(model, self._config.predictions)
            return _StepResult(*self._record.recorded(model), warnings, found, predicted)
        module, corpus = model.load()
        parts = 2 if self._config.predictions.fingerprint else 1
        with blaming_forward(module, corpus.batches, model.label):
            layers, heads = self._measure(module, corpus, part_of(progress, 0, parts))
            rest = part_of(progress, parts - 1, parts)
            predicted = self._predictions(model, (module, corpus), layers.scale, rest)
            look_ahead = _look_ahead(module, corpus, model)
        messages = SaturationAndHeads(layers, heads).messages
        warnings = [*corpus.warnings, *messages, *_leaks(look_ahead), *predicted.warnings]
        if self._record:
            note |= {"warnings": warnings, "look_ahead": [asdict(entry) for entry in look_ahead]}
            shown = attention_examples(module, corpus.example, corpus.example_tokens, heads, layers.scale)
            self._record.save(model, note, SaturationAndHeads(layers, heads), shown, predicted)
        rows = (saturation_rows(layers, model.step, model.stage), head_rows(heads, model.step, model.stage))
        return _StepResult(*rows, warnings, look_ahead, predicted)

    def _predictions(
        self, model: StudiedModel, loaded: tuple[nn.Module, Corpus], scale: float, progress: Progress
    ) -> StepPredictions:
        return measure_predictions(model, loaded, self._config.predictions, scale, progress)

    def _measure(self, module: nn.Module, corpus: Corpus, progress: Progress) -> tuple[Saturation, Heads]:
        limit, blocks, half = self._config.limit, self._config.blocks, part_of(progress, 0, 2)
        if self._config.heads:
            found = saturation_and_heads(module, corpus.batches, limit=limit, blocks=blocks, progress=half)
        else:
            layers = saturation(module, corpus.batches, limit=limit, blocks=blocks, progress=half)
            found = SaturationAndHeads(layers, Heads(()))
        if not self._config.baseline:
            return found.saturation, found.heads
        cosines = self._baseline(module, corpus, found.saturation.scale, part_of(progress, 1, 2))
        return found.saturation.with_baseline(cosines), found.heads

    def _baseline(
        self, module: nn.Module, corpus: Corpus, scale: float, progress: Progress
    ) -> dict[str, float]:
        """The random model's cosines at a scale, measured once for steps of this architecture and text."""
        key = (_architecture(module, corpus), scale)
        if key not in self._baselines:
            limit, blocks, fresh = Limit((scale,)), self._config.blocks, random_like(module)
            random = saturation(fresh, corpus.batches, limit=limit, blocks=blocks, progress=progress)
            self._baselines[key] = {layer.module: layer.cosine for layer in random.layers}
        return self._baselines[key]


def _architecture(module: nn.Module, corpus: Corpus) -> Hashable:
    """Equal for models of one class with parameters of the same shapes, on batches of the same lengths."""
    shapes = tuple((name, parameter.shape) for name, parameter in module.named_parameters())
    return type(module).__qualname__, shapes, tuple(token_count(batch) for batch in corpus.batches)


def _look_ahead(module: nn.Module, corpus: Corpus, model: StudiedModel) -> list[StepLookAhead]:
    """Empty if the check does not apply: a single token, or inputs that are not a sequence."""
    try:
        found: LookAhead = looks_ahead(module, corpus.example)
    except UsageError:
        return []
    causal = meant_causal(module)
    return [StepLookAhead(model.step, causal, found.sees_future, found.change, found.module, model.stage)]


def _leaks(ahead: Sequence[StepLookAhead]) -> list[str]:
    return [
        "the model is built to be causal but sees the future: changing later tokens changes earlier states "
        f"by {entry.change:.2g} of their size, from {entry.module} on; its mask leaks"
        for entry in ahead
        if entry.causal and entry.sees_future
    ]


def _combined(models: Sequence[StudiedModel], results: Sequence[_StepResult]) -> Study:
    warnings = list(dict.fromkeys(remark for model in models for remark in model.remarks))
    every = set.intersection(*(set(result.warnings) for result in results)) if len(results) > 1 else set()
    warnings += [text for text in dict.fromkeys(results[0].warnings) if text in every]
    warnings += [
        f"step {step_key(model.stage, model.step)}: {text}" if len(models) > 1 else text
        for model, result in zip(models, results, strict=True)
        for text in result.warnings
        if text not in every
    ]
    similarity = tuple(row for result in results for row in result.similarity)
    warnings += missing_pwcca(similarity)
    return Study(
        tuple(row for result in results for row in result.layers),
        tuple(row for result in results for row in result.heads),
        tuple(warnings),
        tuple(entry for result in results for entry in result.look_ahead),
        tuple(result.predictions.task for result in results if result.predictions.task),
        tuple(result.predictions.ablations for result in results if result.predictions.ablations),
        similarity,
    )
