"""An error inside a model's own forward is the model's, and said so."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor, nn

import normscope
from normscope.errors import ModelError, NormscopeError
from normscope.network.running.batches import Batch
from normscope.network.running.eval_mode import evaluating

OTHER_INPUTS = ("pixel_values", "input_features", "input_values", "pixel_values_videos", "audio_values")
"""What transformers calls images, spectra and sounds."""


@contextmanager
def blaming_forward(model: nn.Module, batches: Sequence[Batch], name: str) -> Iterator[None]:
    """Turn an error of the model's own forward into a ModelError that says so; others pass.

    The evidence is a plain forward, without us: if that fails, too, the model is the cause. So it is if the
    error was raised in code that is neither ours nor torch's, as by an assertion about scaled values.
    """
    try:
        yield
    except NormscopeError:
        raise
    except Exception as error:
        for batch in batches:
            if (plain := _plain_failure(model, batch)) is not None:
                raise ModelError(_sentence(model, batch, name, plain)) from plain
        if _raised_by_user(error.__traceback__):
            raise ModelError(
                f"the forward of {type(model).__name__} ({name}) fails when its parameters are scaled, and "
                f"not as they are: {_words(error)}; {_ADVICE}"
            ) from error
        raise


_ADVICE = "'normscope --debug …' shows the traceback"


def _plain_failure(model: nn.Module, batch: Batch) -> Exception | None:
    try:
        with evaluating(model):
            batch.run(model)
    except Exception as error:
        return error
    return None


def _sentence(model: nn.Module, batch: Batch, name: str, error: Exception) -> str:
    inputs = [_shown("", value) for value in batch.args]
    inputs += [_shown(f"{key}=", value) for key, value in batch.kwargs.items()]
    taken = [key for key in OTHER_INPUTS if key in inspect.signature(model.forward).parameters]
    other = [key for key in taken if key not in batch.kwargs]
    hint = f" (it also takes {other[0]}: give it all inputs, with my_model.py:build)" if other else ""
    return (
        f"the forward of {type(model).__name__} ({name}) failed, called with ({', '.join(inputs)}): "
        f"{_words(error)}{hint}; {_ADVICE}"
    )


def _words(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _shown(key: str, value: object) -> str:
    if isinstance(value, Tensor):
        return f"{key}{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return (
        f"{key}{value!r}"
        if value is None or isinstance(value, (bool, int))
        else f"{key}{type(value).__name__}"
    )


def _raised_by_user(traceback: TracebackType | None) -> bool:
    """Whether the innermost frame is neither in this package nor in torch."""
    file = ""
    while traceback is not None:
        file, traceback = traceback.tb_frame.f_code.co_filename, traceback.tb_next
    ours = [Path(str(package.__file__)).parent for package in (normscope, torch)]
    return bool(file) and not any(Path(file).is_relative_to(folder) for folder in ours)
