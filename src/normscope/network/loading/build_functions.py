"""Models that the user's own Python file builds, named as `my_model.py:build`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from normscope.checkpoints.series.series import Entry, open_series
from normscope.errors import ModelError, UsageError
from normscope.network.loading.models import Identity, SeriesOptions, StudiedModel
from normscope.network.loading.module_weights import load_weights
from normscope.network.places.placement import Placement
from normscope.network.places.programs import check_program, failures_of, load_object
from normscope.network.running.batches import Batch, as_batches, to_device
from normscope.network.running.inputs import EXAMPLE_TOKENS, Corpus


def built_models(
    reference: str, checkpoints: Sequence[str], placement: Placement, options: SeriesOptions
) -> list[StudiedModel]:
    """The model that `file.py:build` returns, once per checkpoint; as it is if there are none."""
    if checkpoints:
        series = open_series(checkpoints, **options.arguments)
        models = [_with_checkpoint(reference, entry, placement) for entry in series.entries]
        return [replace(model, remarks=series.remarks) for model in models]
    if options != SeriesOptions():
        raise UsageError(
            f"--steps, --pattern and --revisions describe checkpoints, but none follow {reference}: "
            "name some, as in my_model.py:build checkpoints/"
        )
    load = partial(_load, reference, None, placement)
    return [StudiedModel(0, "", reference, partial(_identify, reference, None), load)]


def _with_checkpoint(reference: str, entry: Entry, placement: Placement) -> StudiedModel:
    identify, load = partial(_identify, reference, entry), partial(_load, reference, entry, placement)
    return StudiedModel(entry.step, entry.stage, entry.source, identify, load)


def _identify(reference: str, entry: Entry | None) -> Identity:
    program = {"program": program_digest(reference)}
    if entry is None:
        return program
    with closing(entry.open()) as checkpoint:
        return program | {"checkpoint": checkpoint.digest}


def _load(reference: str, entry: Entry | None, placement: Placement) -> tuple[nn.Module, Corpus]:
    model, batches = build_model(reference, placement)
    notes: tuple[str, ...] = ()
    if entry is not None:
        with closing(entry.open()) as checkpoint:
            words = load_weights(model, checkpoint, entry.source, partial(batches[0].run, model))
            notes = (*checkpoint.notes, *words)
    return model, Corpus(tuple(batches), batches[0], tuple(_token_names(batches[0])), notes)


def _token_names(batch: Batch) -> Iterator[str]:
    """Names for the positions of a batch without a tokenizer: token ids, or numbers."""
    values = (*batch.args, *batch.kwargs.values())
    sequences = [value for value in values if isinstance(value, Tensor) and value.dim() >= 2]
    if sequences:
        first = sequences[0][0][:EXAMPLE_TOKENS]
        ids = first.dim() == 1 and not first.is_floating_point()
        yield from (str(item) for item in (first.tolist() if ids else range(len(first))))


def build_model(source: str, placement: Placement) -> tuple[nn.Module, list[Batch]]:
    """Run `file.py:build`, the user's own code, which returns a model and its batches."""
    with failures_of(source, f"'normscope --debug saturate {source}' shows where"):
        result = _function(source)()
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], nn.Module):
        raise ModelError(
            f"{source} returned {type(result).__name__}; expected a tuple (model, batches): the torch module "
            "and a list of the inputs it is called with"
        )
    model, batches = result
    device, dtype = placement.torch_device(), placement.torch_dtype()
    return placement.place(model), [to_device(batch, device, dtype) for batch in as_batches(batches)]


def program_digest(source: str) -> str:
    """A digest of the Python file behind `file.py:build`; the modules it imports are not included."""
    path, _, name = source.rpartition(":")
    check_program(Path(path), name)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


def _function(source: str) -> Callable[[], Any]:
    function = load_object(source)
    if not callable(function):
        path, _, name = source.rpartition(":")
        raise UsageError(f"{path} has no function {name}(): expected one that returns (model, batches)")
    return function  # type: ignore[no-any-return]
