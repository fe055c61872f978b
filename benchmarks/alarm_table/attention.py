"""Trainings whose attention is seen: healthy ones, exploding logits, collapsing entropy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

import normscope as ns
from benchmarks.alarm_table.faults import Named, from_now_on, once
from benchmarks.alarm_table.healthy import adamw, cosine, fine_tuned, language, sgd, warm
from benchmarks.alarm_table.models import Encoder, brackets, copies, markov, transformer
from benchmarks.alarm_table.training import EVERY_STEP, Case, Fault, Training
from benchmarks.small_optimizers import Lion, Muon
from normscope.schedule import Schedule

Build = Callable[[int], Training]
OBSERVED: Mapping[str, Any] = {"attention": "observe"}


def probed(every: int) -> Mapping[str, Any]:
    """A probe of the network at every so many steps."""
    return {"network": ns.every(every), "batch": markov(77)(0)}


def small() -> nn.Module:
    return transformer(16, 2)


TRAININGS: Mapping[str, tuple[Build, Schedule, Mapping[str, Any]]] = {
    "AdamW": (language(optimize=adamw(1e-3)), EVERY_STEP, OBSERVED),
    "AdamW, high rate": (language(optimize=adamw(1e-2)), EVERY_STEP, OBSERVED),
    "AdamW, warmup, cosine": (language(rate=cosine(30, 300), clip=1.0), EVERY_STEP, OBSERVED),
    "SGD, every 2nd": (language(build=small, optimize=sgd(0.1)), ns.every(2), OBSERVED),
    "Muon": (language(build=small, optimize=lambda p: Muon(p, lr=0.01)), EVERY_STEP, OBSERVED),
    "Lion": (language(optimize=lambda p: Lion(p, lr=5e-4, weight_decay=0.1)), EVERY_STEP, OBSERVED),
    "PyTorch's encoder": (language(build=Encoder, optimize=adamw(2e-3)), EVERY_STEP, OBSERVED),
    "post norm, warmup": (
        language(build=lambda: transformer(norm="post"), rate=warm(50)),
        EVERY_STEP,
        OBSERVED,
    ),
    "RMS norm, tied": (language(build=lambda: transformer(norm="rms", tied=True)), EVERY_STEP, OBSERVED),
    "AdamW, probes": (language(optimize=adamw(3e-3)), ns.every(8), probed(8)),
    "Muon, probes": (language(build=small, optimize=lambda p: Muon(p, lr=0.005)), ns.every(8), probed(8)),
}
"""Healthy trainings that faults are put into, too."""

HEALTHY = (
    *(
        Case(name, build, 250, schedule, 40 + i, heads=heads)
        for i, (name, (build, schedule, heads)) in enumerate(TRAININGS.items())
    ),
    Case(
        "copies, heads that copy",
        language(copies, optimize=adamw(3e-3)),
        600,
        ns.every(3),
        60,
        heads=OBSERVED,
    ),
    Case("copies, high rate", language(copies, optimize=adamw(6e-3)), 600, ns.every(3), 61, heads=OBSERVED),
    Case("brackets", language(brackets, optimize=adamw(3e-3)), 300, seed=62, heads=OBSERVED),
    Case("LoRA", fine_tuned(adamw(3e-3, 0.0)), 200, seed=63, heads=OBSERVED),
    Case("deep, probes", language(build=lambda: transformer(16, 5)), 240, ns.every(8), 64, heads=probed(8)),
)


def queries_and_keys(model: nn.Module) -> Iterator[torch.Tensor]:
    """The rows of every attention's weights that make queries and keys."""
    for name, parameter in model.named_parameters():
        if "qkv" in name or "in_proj" in name:
            yield parameter.data[: 2 * parameter.shape[0] // 3]


def sharpens(factor: float) -> Fault:
    """Queries and keys grow at every step."""

    def fault(training: Training, since: int) -> None:
        for rows in queries_and_keys(training.model):
            rows.mul_(factor)

    return fault


def sharpened(factor: float) -> Fault:
    """Queries and keys are multiplied once, as by a scale that was forgotten."""
    return once(lambda training: [rows.mul_(factor) for rows in queries_and_keys(training.model)] and None)


def fast_queries(factor: float) -> Fault:
    """The learning rate of queries, keys and values is multiplied, in a group of their own."""

    def change(training: Training) -> None:
        for optimizer in training.optimizers:
            for group in list(optimizer.param_groups):
                named = {id(p) for n, p in training.model.named_parameters() if "qkv" in n or "in_proj" in n}
                own = [p for p in group["params"] if id(p) in named]
                group["params"] = [p for p in group["params"] if id(p) not in named]
                optimizer.param_groups.append({**group, "params": own, "lr": factor * group["lr"]})
        training.base = []  # of the groups as they are now

    return from_now_on(change)


def gains(factor: float) -> Fault:
    """The gain of the norm before attention grows at every step."""

    @torch.no_grad()
    def fault(training: Training, since: int) -> None:
        for name, parameter in training.model.named_parameters():
            if ("norm_attention" in name or "norm1" in name) and parameter.ndim == 1:
                parameter.mul_(factor)

    return fault


LOGITS = [
    sharpens(1.1),
    fast_queries(300.0),
    sharpened(8.0),
    gains(1.15),
    sharpens(1.2),
    fast_queries(1000.0),
]
LOGITS += [sharpened(12.0), sharpens(1.12), sharpens(1.15), fast_queries(100.0), sharpened(20.0)]
COLLAPSES = [sharpens(1.2), sharpened(20.0), fast_queries(1000.0), gains(1.3), sharpens(1.3), sharpened(30.0)]
COLLAPSES += [fast_queries(3000.0), sharpens(1.4), sharpens(1.5), sharpened(50.0), sharpens(1.25)]


def variants(fault: str, kinds: Sequence[str], faults: Sequence[Fault], seed: int) -> Iterator[Named]:
    for i, each in enumerate(faults):
        name, (build, schedule, heads) = list(TRAININGS.items())[(i + seed) % len(TRAININGS)]
        every = getattr(schedule, "n", 1)
        begins = every * (24 if "network" in heads else 60 + 3 * i)  # probes take long
        yield (
            fault,
            kinds,
            Case(name, build, begins + 24 * every, schedule, seed + i, each, begins, heads=heads),
        )


def table(seed: int) -> list[Named]:
    return [
        *variants("attention logits explode", ("attention-logits",), LOGITS, seed),
        *variants("attention entropy collapses", ("attention-entropy",), COLLAPSES, seed),
    ]


FAULTS = table(0)
KEPT_APART = table(104)
