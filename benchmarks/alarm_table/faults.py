"""Trainings with a fault, in ten variants each: other models, optimizers, schedules, seeds, strengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import normscope as ns
from benchmarks.alarm_table.healthy import (
    adafactor,
    adamw,
    cosine,
    language,
    sgd,
    warm,
)  # fmt: skip
from benchmarks.alarm_table.models import Encoder, transformer
from benchmarks.alarm_table.training import EVERY_STEP, Case, Fault, Training
from benchmarks.small_optimizers import Lion, Muon

Named = tuple[str, Sequence[str], Case]


def half() -> nn.Module:
    return transformer(16, 2)


BUILDS: dict[str, tuple[Callable[[int], Training], dict[str, Any]]] = {
    "AdamW": (language(optimize=adamw(1e-3)), {}),
    "AdamW, every 5th": (language(build=half, optimize=adamw(1e-3)), {"schedule": ns.every(5)}),
    "AdamW, warmup, cosine": (language(rate=cosine(30, 400), clip=1.0), {}),
    "SGD": (language(build=half, optimize=sgd(0.1)), {}),
    "SGD, every 2nd": (language(optimize=sgd(0.05)), {"schedule": ns.every(2)}),
    "Muon": (language(build=half, optimize=lambda p: Muon(p, lr=3e-3)), {}),
    "Lion": (language(build=half, optimize=lambda p: Lion(p, lr=3e-4, weight_decay=0.1)), {}),
    "Adafactor, logarithmic": (
        language(build=half, optimize=adafactor(0.01)),
        {"schedule": ns.logarithmic(150)},
    ),
    "deep, tied": (language(build=lambda: transformer(16, 5, "rms", True), optimize=adamw(1e-3)), {}),
    "encoder": (language(build=lambda: Encoder(16, 3), optimize=adamw(1e-3), rate=warm(20)), {}),
}
"""Trainings that faults are put into; all are transformers."""


def grows(names: Sequence[str], factor: float) -> Fault:
    """Multiply the parameters of some modules at every step."""

    @torch.no_grad()
    def fault(training: Training, since: int) -> None:
        for name, parameter in training.model.named_parameters():
            if any(part in name for part in names):
                parameter.mul_(factor)

    return fault


def once(
    change: Callable[[Training], None], undo: Callable[[Training], None] = lambda training: None
) -> Fault:
    """Change something when the fault begins, and undo it after one step."""

    def fault(training: Training, since: int) -> None:
        if since < 2:
            (undo if since else change)(training)

    return fault


def loss_times(factor: float) -> Fault:
    """One step's loss is multiplied."""
    return once(lambda t: setattr(t, "loss_factor", factor), lambda t: setattr(t, "loss_factor", 1.0))


def from_now_on(change: Callable[[Training], None]) -> Fault:
    return once(change)


def layers(training: Training) -> nn.ModuleList:
    model = training.model
    found = model.blocks if hasattr(model, "blocks") else model.layers
    assert isinstance(found, nn.ModuleList)
    return found


def scaled_gradient(which: int | str, factor: float) -> Fault:
    """The gradients of a layer, or of a module by name, are multiplied from now on."""

    def change(training: Training) -> None:
        module = layers(training)[which] if isinstance(which, int) else training.model.get_submodule(which)
        for parameter in module.parameters():
            parameter.register_hook(lambda gradient: factor * gradient)

    return from_now_on(change)


def detached(which: int) -> Fault:
    """What a layer adds is detached: its parameters get no gradient at all, the layers before it still do."""

    def change(training: Training) -> None:
        def hook(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
            return given[0] + (output - given[0]).detach()

        layers(training)[which].register_forward_hook(hook)

    return from_now_on(change)


def cut(which: int) -> Fault:
    """The output of a layer is detached: neither it nor anything before it gets gradients."""

    def change(training: Training) -> None:
        layers(training)[which].register_forward_hook(lambda module, given, output: output.detach())

    return from_now_on(change)


def gradient_times(factor: float) -> Fault:
    """All gradients of one step are multiplied, and the loss that is shown is not."""
    handles: list[Any] = []

    def change(training: Training) -> None:
        parameters = [p for p in training.model.parameters() if p.requires_grad]
        handles.extend(p.register_hook(lambda gradient: factor * gradient) for p in parameters)

    def undo(training: Training) -> None:
        for handle in handles:
            handle.remove()

    return once(change, undo)


def rate_times(factor: float) -> Fault:
    def change(training: Training) -> None:
        before = training.rate
        training.rate = lambda step: factor * before(step)

    return from_now_on(change)


def nan_in_parameter(name: str) -> Fault:
    @torch.no_grad()
    def change(training: Training) -> None:
        training.model.get_parameter(name).view(-1)[0] = float("nan")

    return from_now_on(change)


def nan_in_forward(which: int) -> Fault:
    def change(training: Training) -> None:
        layers(training)[which].register_forward_hook(lambda module, given, output: output / 0.0 * 0.0)

    return from_now_on(change)


def nan_in_gradient(which: int) -> Fault:
    return scaled_gradient(which, float("nan"))


def loss_drifts(factor: float) -> Fault:
    def fault(training: Training, since: int) -> None:
        training.loss_factor *= factor

    return fault


def all_times(factor: float) -> Fault:
    @torch.no_grad()
    def change(training: Training) -> None:
        for parameter in training.model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(factor)

    return from_now_on(change)


def variants(
    fault: str, kinds: Sequence[str], faults: Sequence[Fault], seed: int, **more: Any
) -> Iterator[Named]:
    """Each fault in the next of the trainings."""
    for i, each in enumerate(faults):
        name, (build, options) = list(BUILDS.items())[(i + seed) % len(BUILDS)]
        every = getattr(options.get("schedule"), "n", 1)
        schedule = options.get("schedule", EVERY_STEP)
        wanted = 100 + 7 * i if every == 1 else every * (60 + i)
        begins = next(step for step in range(wanted, 2 * wanted) if step in schedule)
        case = Case(
            name, build, begins + 40 * every, seed=seed + i, fault=each, begins=begins, **(more | options)
        )
        yield fault, kinds, case


GROWTH = ("growth", "layer", "law")
DIVERGES = ("loss-climb", "loss-spike", "loss-nonfinite", "nonfinite", "growth", "ascent")


JUMPS = (*DIVERGES, "law")
"""Of a rate that is far too high: some optimizers survive it, and then the norm has jumped all the same."""


def diverging(seed: int) -> Iterator[Named]:
    """Gradient ascent, or a rate that is far too high."""
    up = from_now_on(lambda training: setattr(training, "ascends", True))
    rates = {1: 300.0, 3: 100.0, 5: 1000.0, 8: 300.0}
    faults = [rate_times(rates[i]) if i in rates else up for i in range(10)]
    name = "training diverges: ascent, or a rate 100 to 1000 times too high"
    for i, (_, _, case) in enumerate(variants(name, (), faults, seed)):
        yield name, JUMPS if i in rates else DIVERGES, case


def table(seed: int) -> list[Named]:
    """Every fault in its variants; the seed moves them to other trainings."""
    ends = ("emb", "head")
    rates = (1.02, 1.03, 1.05, 1.02, 1.1, 1.04, 1.2, 1.02, 1.03, 1.025)
    places = (ends, ends, ("emb",), ends, ("emb",), ends, ends, ends, ("",), ends)
    grown = [grows(names, rate) for names, rate in zip(places, rates, strict=True)]
    one = [
        grows(("blocks.1.", "layers.1."), r) for r in (1.02, 1.03, 1.04, 1.05, 1.07, 1.1, 1.15, 1.2, 1.3, 1.5)
    ]
    spikes = (1e4, 1e4, 1e3, 1e3, 1e2, 1e2, 30.0, 30.0, 10.0, 10.0)
    jumps = (1e4, 1e4, 1e3, 1e3, 1e5, 1e5, 300.0, 300.0, 100.0, 1e6)
    jumped = [gradient_times(factor) for factor in jumps]
    dead = [detached(0), detached(1), cut(0), cut(1), scaled_gradient(0, 0.0), scaled_gradient(1, 0.0)]
    dead += [scaled_gradient(1, 1e-5), scaled_gradient(0, 1e-6), scaled_gradient(1, 1e-4), detached(1)]
    nans = [nan_in_forward(0), nan_in_forward(1), nan_in_gradient(0), nan_in_gradient(1)]
    nans += [loss_times(float("nan")), loss_times(float("inf")), nan_in_forward(1), nan_in_gradient(1)]
    nans += [nan_in_forward(0), loss_times(float("nan"))]
    drifts = [loss_drifts(f) for f in (1.3, 1.5, 2.0, 0.5, 0.6, 1.4, 3.0, 0.4, 1.6, 0.3)]
    moved = [all_times(f) for f in (1.3, 1.5, 2.0, 0.7, 0.5, 1.2, 3.0, 0.3, 1.4, 0.8)]
    return [
        *variants("embeddings and head grow", GROWTH, grown, seed),
        *variants("one layer grows", GROWTH, one, seed),
        *variants("one step's loss is multiplied", ("loss-spike",), [loss_times(f) for f in spikes], seed),
        *variants("one step's gradient is multiplied", ("gradient-spike",), jumped, seed, logged=False),
        *variants("a layer gets no gradient", ("dead",), dead, seed),
        *diverging(seed),
        *variants("NaN or infinity", ("nonfinite", "loss-nonfinite"), nans, seed),
        *variants("the gradient drifts, not logged", ("drift",), drifts, seed, logged=False),
        *variants("the parameters are changed at once", ("law",), moved, seed),
    ]  # fmt: skip


TUNED = table(0)
KEPT_APART = table(103)
FRESH = table(216)
LAST = table(329)
