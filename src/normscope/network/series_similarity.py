"""When each layer's representation settles: its similarity with the previous and with the last step."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from normscope.errors import UsageError
from normscope.network.loading.models import Identity, StudiedModel
from normscope.network.measuring.layer_similarity import SAMPLED_TOKENS, Similarity, compare_states
from normscope.network.running.batches import Batch
from normscope.network.running.inputs import Corpus
from normscope.network.watching.token_sample import LayerStates, sample_states
from normscope.rows import SIMILARITY_NOTES, SimilarityRow, step_key
from normscope.run import Run

Place = tuple[str, int]
"""Stage and step."""


@dataclass(frozen=True, eq=False)
class _CheckpointStates:
    """The states of one checkpoint, and a digest of the inputs that they belong to."""

    inputs: str
    layers: LayerStates


class SeriesSimilarity:
    """Compares each step with the one before it and with the last one of its stage.

    Three checkpoints' states are in memory at most: those of the step, of the one before it and of the last.
    They are taken when a model is loaded for other measurements; the last is loaded once more, at the
    beginning. A step whose rows the run file already has, from the same three checkpoints and settings,
    is not compared again.
    """

    def __init__(self, run: Run, models: Sequence[StudiedModel], settings: Mapping[str, Any]) -> None:
        self._run, self._settings = run, {**settings, "tokens": SAMPLED_TOKENS}
        self._models = {(model.stage, model.step): model for model in models}
        self._identities: dict[Place, Identity] = {}
        self._states: dict[Place, _CheckpointStates] = {}

    def watched(self, model: StudiedModel) -> StudiedModel:
        """The model, of which loading also keeps the states that the comparisons need."""
        return replace(model, load=partial(self._load, model))

    def result(self, model: StudiedModel) -> tuple[list[SimilarityRow], list[str]]:
        """The rows of one step and warnings, from the run file if they are there."""
        place, others = (model.stage, model.step), self._others(model)
        note = self._note(model)
        done = self._notes.get(step_key(*place), {})
        rows = self._recorded(place)
        if _without_results(done) == note and done["rows"] == len(rows):
            return rows, done["warnings"]
        self._provide([*others.values(), place])
        found = {name: self._compared(place, other) for name, other in others.items()}
        made = (row for name, each in found.items() for row in _rows(each, place, name, others[name]))
        rows = sorted(made, key=_in_order)
        warnings = list(dict.fromkeys(text for each in found.values() for text in each.warnings))
        if len(self._stage(model.stage)) == 1:
            warnings.append("the only checkpoint of its stage: there is none to compare its states with")
        self._save(place, rows, {**note, "rows": len(rows), "warnings": warnings})
        self._forget_all_but(model)
        return rows, warnings

    # -- which steps are compared ------------------------------------------------------

    def _stage(self, stage: str) -> list[int]:
        return sorted(step for name, step in self._models if name == stage)

    def _others(self, model: StudiedModel) -> dict[str, Place]:
        steps = self._stage(model.stage)
        number = steps.index(model.step)
        found = {"previous": steps[number - 1]} if number else {}
        if number + 1 < len(steps):
            found["last"] = steps[-1]
        return {name: (model.stage, step) for name, step in found.items()}

    def _note(self, model: StudiedModel) -> dict[str, Any]:
        """What the rows of a step depend on: how the states are taken, and of which checkpoints."""
        compared = {name: [place[1], self._identity(place)] for name, place in self._others(model).items()}
        return {**self._settings, "model": self._identity((model.stage, model.step)), **compared}

    def _identity(self, place: Place) -> Identity:
        if place not in self._identities:
            self._identities[place] = self._models[place].identify()
        return self._identities[place]

    # -- states ------------------------------------------------------------------------

    def _load(self, model: StudiedModel) -> tuple[nn.Module, Corpus]:
        """Load a model and keep its states; those it is compared with first, one model at a time."""
        self._provide(self._others(model).values())
        self._identity((model.stage, model.step))  # before loading: the files may change
        module, corpus = model.load()
        self._keep((model.stage, model.step), module, corpus)
        return module, corpus

    def _provide(self, places: Iterable[Place]) -> None:
        for place in places:
            if place not in self._states:
                self._identity(place)
                self._keep(place, *self._models[place].load())

    def _keep(self, place: Place, module: nn.Module, corpus: Corpus) -> None:
        if place not in self._states:
            layers = sample_states(module, corpus.batches, SAMPLED_TOKENS)
            self._states[place] = _CheckpointStates(_inputs_digest(corpus.batches), layers)

    def _forget_all_but(self, model: StudiedModel) -> None:
        kept = {(model.stage, model.step), (model.stage, self._stage(model.stage)[-1])}
        self._states = {place: states for place, states in self._states.items() if place in kept}

    def _compared(self, place: Place, other: Place) -> Similarity:
        ours, theirs = self._states[place], self._states[other]
        if ours.inputs != theirs.inputs:
            return Similarity(
                (),
                (
                    f"no similarity with step {other[1]}: the two were not run on the same tokens (another "
                    "tokenizer, another longest sequence, or inputs that build() makes anew each time)",
                ),
            )
        return compare_states(ours.layers, theirs.layers, ("this checkpoint", f"step {other[1]}"))

    # -- the run file ------------------------------------------------------------------

    @cached_property
    def _notes(self) -> dict[str, dict[str, Any]]:
        return self._run.artifacts(SIMILARITY_NOTES)

    def _recorded(self, place: Place) -> list[SimilarityRow]:
        """The rows in the file now: measuring a step again deletes them."""
        names = ", ".join(field.name for field in fields(SimilarityRow))
        rows = self._run.query(f"SELECT {names} FROM similarity WHERE stage = ? AND step = ?", place)
        return sorted((SimilarityRow(*row) for row in rows), key=_in_order)

    def _save(self, place: Place, rows: Sequence[SimilarityRow], note: Mapping[str, Any]) -> None:
        with self._run.transaction():
            self._run.delete_rows("similarity", "stage = ? AND step = ?", place)
            self._run.write(rows)
            self._run.set_artifact(SIMILARITY_NOTES, step_key(*place), note)


def series_similarity(
    run: Run | None, models: Sequence[StudiedModel], settings: Mapping[str, Any]
) -> SeriesSimilarity:
    """The comparison of a series; UsageError if there are not two checkpoints of one stage."""
    if run is None or len({model.stage for model in models}) == len(models):
        raise UsageError(
            "--similarity compares the checkpoints of a series, or a model before and after fine-tuning: it "
            f"needs at least two models of one stage; got {len(models)}"
        )
    return SeriesSimilarity(run, models, settings)


def forget_stale_similarity(run: Run, models: Iterable[StudiedModel]) -> None:
    """Delete the rows that compare a step with a checkpoint that has been replaced since."""
    if not run.query("SELECT 1 FROM similarity LIMIT 1"):
        return
    notes = run.artifacts(SIMILARITY_NOTES)
    now = {step_key(model.stage, model.step): model.identify() for model in models}
    for key, note in notes.items():
        stage, _, step = key.rpartition("/")
        compared = [note[name] for name in ("previous", "last") if name in note]
        if any(now.get(step_key(stage, other), made_of) != made_of for other, made_of in compared):
            with run.transaction():
                run.delete_rows("similarity", "stage = ? AND step = ?", (stage, int(step)))
                run.delete_rows("artifact", "kind = ? AND key = ?", (SIMILARITY_NOTES, key))


def _rows(found: Similarity, place: Place, name: str, other: Place) -> list[SimilarityRow]:
    stage, step = place
    return [SimilarityRow(step, name, other[1], **vars(layer), stage=stage) for layer in found.layers]


def _in_order(row: SimilarityRow) -> tuple[bool, str, int, str]:
    return row.other == "last", row.module.rpartition(".")[0], row.layer, row.module


def _without_results(note: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in note.items() if name not in ("rows", "warnings")}


def _inputs_digest(batches: Iterable[Batch]) -> str:
    """Equal for batches with the same tensors: token ids, masks and other inputs."""
    digest = hashlib.sha256()
    for batch in batches:
        named = [*enumerate(batch.args), *sorted(batch.kwargs.items())]
        for name, value in [*named, ("mask", batch.mask), ("decoder mask", batch.decoder_mask)]:
            if isinstance(value, Tensor):
                digest.update(f"{name} {value.dtype} {list(value.shape)} ".encode())
                digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
