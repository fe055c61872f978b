"""All that `normscope saturate` measures, over one model or a series, into a run file where there is one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from normscope.errors import UsageError
from normscope.network.attention.examples import examples
from normscope.network.attention.heads import Heads
from normscope.network.attention.lookahead import LookAhead, looks_ahead, meant_causal
from normscope.network.limit.homogeneity import Homogeneity, homogeneity
from normscope.network.limit.joint import saturation_and_heads
from normscope.network.limit.saturation import Limit, Saturation, saturation
from normscope.network.limit.scaling import scaled
from normscope.network.recording import Store, head_rows, record_curves, saturation_rows
from normscope.network.running.baseline import random_like
from normscope.network.running.inputs import Corpus
from normscope.network.running.loading import Placement
from normscope.network.running.models import Subject, Text, find_subjects
from normscope.progress import Progress, silent
from normscope.run import HeadRow, Run, SaturationRow


@dataclass(frozen=True)
class StudyConfig:
    """What to measure, and how."""

    limit: Limit = field(default_factory=Limit)
    baseline: bool = True
    heads: bool = True
    run: Path | None = None
    placement: Placement = field(default_factory=Placement)

    def fingerprint(self, text: Text) -> dict[str, Any]:
        """How it is measured: what must be the same for a measurement not to be repeated."""
        digest = hashlib.sha256("\n".join(text.sentences).encode()).hexdigest()[:16]
        return {
            "text": digest,
            "scales": list(self.limit.scales),
            "tolerance": self.limit.tolerance,
            "baseline": self.baseline,
            "heads": self.heads,
            "dtype": self.placement.dtype,
        }


@dataclass(frozen=True)
class StepLookAhead:
    """Whether the model of one step sees the future, and whether it is meant not to."""

    step: int
    causal: bool
    sees_future: bool
    change: float
    module: str | None


@dataclass(frozen=True)
class Study:
    """Layers and heads of every step, with sentences the reader should see."""

    layers: tuple[SaturationRow, ...]
    heads: tuple[HeadRow, ...]
    warnings: tuple[str, ...]
    look_ahead: tuple[StepLookAhead, ...] = ()

    @property
    def steps(self) -> list[int]:
        """The steps measured, in order."""
        return sorted({row.step for row in self.layers})


@dataclass(frozen=True)
class _Part:
    layers: list[SaturationRow]
    heads: list[HeadRow]
    warnings: list[str] = field(default_factory=list)
    look_ahead: list[StepLookAhead] = field(default_factory=list)


def study(
    sources: Sequence[str], text: Text, config: StudyConfig = StudyConfig(), progress: Progress = silent
) -> Study:
    """Saturation, heads and look-ahead of every model behind `sources`.

    A series is written to `config.run`, "run.db" by default; a single model only when
    asked. Every step is written when it is done, and a step that is there
    already, measured in the same way, is not measured again.
    """
    subjects = find_subjects(sources, text, config.placement)
    path = config.run or (Path("run.db") if len(subjects) > 1 else None)
    baseline = _Baseline(config)
    parts: list[_Part] = []
    with Run.create(path) if path else nullcontext() as run:
        store = Store(run, config.fingerprint(text)) if run else None
        for number, subject in enumerate(subjects):
            part = _Part(*store.recorded(subject)) if store and store.has(subject) else None
            within = _within(progress, number, len(subjects))
            parts.append(part or _measured(subject, config, baseline, store, within))
    return _together(parts, named=len(subjects) > 1, subjects=subjects)


def study_homogeneity(
    source: str,
    text: Text,
    config: StudyConfig = StudyConfig(),
    at: float = 1.0,
    progress: Progress = silent,
) -> Homogeneity:
    """The degrees of one model, looked at when scaled by `at`, with its curves into the run file."""
    (subject, *more) = find_subjects([source], text, config.placement)
    if more:
        raise UsageError(
            f"{source} is a series of {len(more) + 1} models: give one of them, such as {subject.label}"
        )
    model, corpus = subject.load()
    with scaled(model, at):
        found = homogeneity(model, corpus.batches, progress=progress)
    if config.run is not None:
        with Run.create(config.run) as run:
            record_curves(run, found)
    return replace(found, warnings=(*corpus.warnings, *found.warnings))


class _Baseline:
    """The random model's saturation: the same at every step of a series, so measured once."""

    def __init__(self, config: StudyConfig) -> None:
        self._config = config
        self._cosines: dict[str, float] | None = None

    def beside(self, model: nn.Module, corpus: Corpus, result: Saturation, progress: Progress) -> Saturation:
        if not self._config.baseline:
            return result
        if self._cosines is None:
            random = saturation(
                random_like(model), corpus.batches, limit=self._config.limit, progress=progress
            )
            self._cosines = {layer.module: layer.cosine for layer in random.layers}
        return result.with_baseline(self._cosines)


def _measured(
    subject: Subject, config: StudyConfig, baseline: _Baseline, store: Store | None, progress: Progress
) -> _Part:
    model, corpus = subject.load()
    half = _within(progress, 0, 2)
    if config.heads:
        layers, heads = saturation_and_heads(model, corpus.batches, config.limit, progress=half)
    else:
        layers, heads = saturation(model, corpus.batches, limit=config.limit, progress=half), Heads(())
    layers = baseline.beside(model, corpus, layers, _within(progress, 1, 2))
    ahead = _look_ahead(model, corpus, subject.step)
    if store is not None:
        shown = examples(model, corpus.example, corpus.example_tokens, heads, config.limit.scales[0])
        store.keep(subject, layers, heads, shown)
    warnings = [*corpus.warnings, *layers.warnings, *heads.warnings, *_leak(ahead)]
    return _Part(saturation_rows(layers, subject.step), head_rows(heads, subject.step), warnings, ahead)


def _look_ahead(model: nn.Module, corpus: Corpus, step: int) -> list[StepLookAhead]:
    """None where the check does not apply: one token only, or inputs that are no sequence."""
    try:
        found: LookAhead = looks_ahead(model, corpus.example)
    except UsageError:
        return []
    return [StepLookAhead(step, meant_causal(model), found.sees_future, found.change, found.module)]


def _leak(ahead: Sequence[StepLookAhead]) -> list[str]:
    return [
        "the model is built to be causal but sees the future: changing later tokens changes earlier states "
        f"by {entry.change:.2g} of their size, from {entry.module} on; its mask leaks"
        for entry in ahead
        if entry.causal and entry.sees_future
    ]


def _together(parts: Sequence[_Part], *, named: bool, subjects: Sequence[Subject]) -> Study:
    warnings = [
        f"step {subject.step}: {text}" if named else text
        for subject, part in zip(subjects, parts, strict=True)
        for text in part.warnings
    ]
    return Study(
        tuple(row for part in parts for row in part.layers),
        tuple(row for part in parts for row in part.heads),
        tuple(warnings),
        tuple(entry for part in parts for entry in part.look_ahead),
    )


def _within(progress: Progress, number: int, count: int) -> Progress:
    """Progress of one of several equal parts."""

    def shown(done: float, total: float, note: str) -> None:
        progress(number + (done / total if total else 0), count, note)

    return shown
