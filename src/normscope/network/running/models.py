"""What a user may point at: one model, a series of them, or a program with weights to load into it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from normscope.errors import CheckpointError, CorruptCheckpoint, ModelError, UsageError
from normscope.network.running.batches import Batch
from normscope.network.running.inputs import Corpus, corpus
from normscope.network.running.loading import (
    Placement,
    build_model,
    check_model,
    is_build_reference,
    load_model,
    load_tokenizer,
)

_STEP = re.compile(r"(?:checkpoint|step|global_step|iter|epoch|ckpt)[-_=]?(\d+)", re.IGNORECASE)
_NESTED = ("model_state_dict", "state_dict", "model", "module")
_PREFIXES = ("module.", "_orig_mod.", "model.")


@dataclass(frozen=True)
class Subject:
    """One model to measure: its step in training, its name, and how to get at it."""

    step: int
    label: str
    load: Callable[[], tuple[nn.Module, Corpus]]


@dataclass(frozen=True)
class Text:
    """The sentences to run a model on, and whose tokenizer to use; its own by default."""

    sentences: Sequence[str]
    tokenizer: str | None = None


def find_subjects(sources: Sequence[str], text: Text, placement: Placement) -> list[Subject]:
    """The models behind the arguments of a command, in the order of their steps.

    A folder with a config.json, or a hub id, is one model; a folder of such folders
    is a series; `file.py:build` is the user's own model, into which any checkpoints
    named after it are loaded one by one.
    """
    if not sources:
        raise UsageError(
            "expected a model: a folder, a hub id, or a Python file and function such as my_model.py:build"
        )
    if is_build_reference(sources[0]):
        return _built(sources[0], sources[1:], placement)
    places = [place for source in sources for place in _models(source)]
    steps = step_numbers([Path(place).name for place in places])
    found = [
        Subject(step, place, partial(_hugging_face, place, text, placement))
        for step, place in zip(steps, places, strict=True)
    ]
    return sorted(found, key=lambda subject: subject.step)


def step_numbers(names: Sequence[str]) -> list[int]:
    """Training steps out of names such as checkpoint-500; counted from 0 where the names do not tell."""
    if len(names) == 1:
        match = _STEP.search(names[0]) or re.fullmatch(r"()(\d+)", names[0])
        return [int(match.groups()[-1]) if match else 0]
    numbers = [_number(name) for name in names]
    if None in numbers or len(set(numbers)) < len(numbers):
        return list(range(len(names)))
    return [number for number in numbers if number is not None]


def _number(name: str) -> int | None:
    match = _STEP.search(name)
    digits = [match.group(1)] if match else re.findall(r"\d+", name)
    return int(digits[-1]) if digits else None


def _models(source: str) -> list[str]:
    """The source itself, or the model folders inside a folder that is none."""
    folder = Path(source)
    if not folder.is_dir() or (folder / "config.json").is_file():
        return [source]
    inside = sorted(str(child.parent) for child in folder.glob("*/config.json"))
    if not inside:
        raise ModelError(
            f"{folder} holds no Hugging Face model and no folders with one: expected config.json and weights "
            "in it or in its subfolders, or give my_model.py:build and the checkpoints to load into it"
        )
    return inside


def _hugging_face(place: str, text: Text, placement: Placement) -> tuple[nn.Module, Corpus]:
    check_model(place)
    tokenizer = load_tokenizer(text.tokenizer or place)
    model = load_model(place, placement)
    return model, corpus(text.sentences, tokenizer, model)


def _built(reference: str, checkpoints: Sequence[str], placement: Placement) -> list[Subject]:
    if not checkpoints:
        return [Subject(0, reference, partial(_with_weights, reference, None, placement))]
    files = [file for place in checkpoints for file in _files(Path(place))]
    steps = step_numbers([file.stem for file in files])
    found = [
        Subject(step, str(file), partial(_with_weights, reference, file, placement))
        for step, file in zip(steps, files, strict=True)
    ]
    return sorted(found, key=lambda subject: subject.step)


def _files(place: Path) -> list[Path]:
    if place.is_dir():
        inside = [f for f in place.iterdir() if f.suffix in (".pt", ".pth", ".bin", ".ckpt", ".safetensors")]
        if inside:
            return sorted(inside)
    if place.is_file():
        return [place]
    raise UsageError(f"no checkpoint at {place}: expected .pt, .pth, .ckpt, .bin or .safetensors files")


def _with_weights(reference: str, file: Path | None, placement: Placement) -> tuple[nn.Module, Corpus]:
    model, batches = build_model(reference, placement)
    if file is not None:
        load_weights(model, file)
    first = batches[0]
    return model, Corpus(tuple(batches), first, tuple(_names(first)))


def load_weights(model: nn.Module, file: Path) -> None:
    """Load a plain state dict, or one inside a training checkpoint, into a model; no code is ever run."""
    state = _state(_read(file))
    try:
        model.load_state_dict(_stripped(state, set(model.state_dict())))
    except RuntimeError as error:
        lines = str(error).strip().splitlines()
        raise ModelError(
            f"{file} does not fit the model: {' '.join(lines[1:2] or lines)[:300].strip()}"
        ) from None


def _read(file: Path) -> Any:
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(file)
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CorruptCheckpoint(
            f"cannot read {file}: {str(error).strip().partition(chr(10))[0][:200]}"
        ) from error


def _state(value: Any) -> dict[str, Tensor]:
    while isinstance(value, dict):
        if value and all(isinstance(item, Tensor) for item in value.values()):
            return value
        inner = next((value[name] for name in _NESTED if isinstance(value.get(name), dict)), None)
        if inner is None:
            break
        value = inner
    raise CheckpointError(
        f"expected a state dict (names and tensors), possibly under {', '.join(_NESTED)}; found none"
    )


def _stripped(state: dict[str, Tensor], expected: set[str]) -> dict[str, Tensor]:
    """Names without the prefixes that wrappers add, where that is what makes them fit."""
    for prefix in _PREFIXES:
        if not expected.issuperset(state) and all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def _names(batch: Batch) -> Iterator[str]:
    """Something to call the positions of a batch whose tokenizer is unknown: ids, or numbers."""
    values = [
        value
        for value in (*batch.args, *batch.kwargs.values())
        if isinstance(value, Tensor) and value.dim() >= 2
    ]
    if values:
        first = values[0][0][:24]
        integers = not first.is_floating_point() and first.dim() == 1
        yield from (str(item) for item in (first.tolist() if integers else range(len(first))))
