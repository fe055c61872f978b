"""Trainings in which one direction of a matrix grows away, and healthy ones with their spectral norms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from benchmarks.alarm_table import healthy, moving_targets
from benchmarks.alarm_table.faults import BUILDS, Named, from_now_on, layers, once
from benchmarks.alarm_table.training import EVERY_STEP, Case, Fault, Training

KINDS = ("spectral-growth",)
SPECTRAL = {"spectral": True}


def watched(cases: Sequence[Case]) -> tuple[Case, ...]:
    """The same trainings with their spectral norms."""
    return tuple(replace(case, heads=SPECTRAL) for case in cases)


HEALTHY = watched((*healthy.TUNED, *healthy.KEPT_APART))
KEPT_QUIET = watched((*healthy.FRESH, *moving_targets.HEALTHY))


def matrix(training: Training, layer: int, number: int) -> nn.Parameter:
    """One of the matrices of a layer."""
    found = [p for p in layers(training)[layer].parameters() if p.ndim == 2]
    return found[number % len(found)]


def top(weight: Tensor) -> tuple[Tensor, Tensor]:
    """σ₁ and the outer product of its singular vectors."""
    left, values, right = torch.linalg.svd(weight.detach().float(), full_matrices=False)
    return values[0], torch.outer(left[:, 0], right[0])


def inflated(layer: int, number: int, factor: float) -> Fault:
    """The top direction grows by a factor at every step."""

    @torch.no_grad()
    def fault(training: Training, since: int) -> None:
        weight = matrix(training, layer, number)
        value, direction = top(weight)
        weight.add_(((factor - 1) * value * direction).to(weight.dtype))

    return fault


def random_direction(weight: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    left, right = (torch.randn(side, generator=generator) for side in weight.shape)
    return torch.outer(left / left.norm(), right / right.norm()).to(weight.dtype)


def spike(layer: int, number: int, size: float) -> Fault:
    """A matrix of rank 1 is added once, of so many times σ₁."""

    @torch.no_grad()
    def change(training: Training) -> None:
        weight = matrix(training, layer, number)
        weight.add_(size * float(top(weight)[0]) * random_direction(weight))

    return once(change)


def ramp(layer: int, number: int, size: float) -> Fault:
    """A matrix of rank 1 is added again and again, of so many times the spectral norm at the beginning."""
    begun: dict[int, float] = {}

    @torch.no_grad()
    def fault(training: Training, since: int) -> None:
        weight = matrix(training, layer, number)
        value = begun.setdefault(0, float(top(weight)[0]))
        weight.add_(size * value * random_direction(weight))

    return fault


def rate_of_one(layer: int, number: int, factor: float) -> Fault:
    """One matrix gets a far higher learning rate."""

    def change(training: Training) -> None:
        weight = matrix(training, layer, number)
        for optimizer, base in zip(training.optimizers, training.base, strict=True):
            for i, group in enumerate(list(optimizer.param_groups)):
                if any(p is weight for p in group["params"]):
                    group["params"] = [p for p in group["params"] if p is not weight]
                    base.append(factor * base[i])
                    optimizer.param_groups.append({**group, "params": [weight], "lr": base[-1]})

    return from_now_on(change)


def variants(fault: str, faults: Sequence[Fault], seed: int) -> Iterator[Named]:
    """Each fault in the next of the trainings."""
    for i, each in enumerate(faults):
        name, (build, options) = list(BUILDS.items())[(i + seed) % len(BUILDS)]
        schedule = options.get("schedule", EVERY_STEP)
        every = getattr(schedule, "n", 1)
        begins = next(step for step in range(every * (60 + 7 * i), 10_000) if step in schedule)
        last = begins + 40 * every
        yield (
            fault,
            KINDS,
            Case(name, build, last, seed=seed + i, fault=each, begins=begins, heads=SPECTRAL, **options),
        )


def table(seed: int) -> list[Named]:
    """Every fault in its variants; the seed moves them to other trainings."""
    factors = (1.05, 1.05, 1.1, 1.05, 1.2, 1.05, 1.07, 1.05, 1.1, 1.05)
    inflations = [inflated(i % 2, i + seed, f) for i, f in enumerate(factors)]
    spikes = [spike(i % 2, i + seed, f) for i, f in enumerate((3.0, 2.0, 5.0, 3.0, 10.0, 2.0))]
    ramps = [ramp(i % 2, i + seed, f) for i, f in enumerate((0.2, 0.3, 0.5, 0.2, 1.0))]
    rates = [rate_of_one(i % 2, i + seed, f) for i, f in enumerate((100.0, 100.0, 30.0, 100.0, 300.0))]
    return [
        *variants("the top direction grows ×1.05 to ×1.2 a step", inflations, seed),
        *variants("a matrix of rank 1 is added, 2 to 10 σ₁", spikes, seed + 1),
        *variants("a matrix of rank 1 is added at every step, 0.2 to 1 σ₁", ramps, seed + 2),
        *variants("a matrix has 30 to 300 times the learning rate", rates, seed + 3),
    ]


FAULTS = table(0)
KEPT_APART = table(104)
