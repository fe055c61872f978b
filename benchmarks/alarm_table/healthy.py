"""Trainings in which nothing is wrong: those that thresholds were chosen with, and those kept apart."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

import normscope as ns
from benchmarks.alarm_table.models import (
    Addition,
    Adversaries,
    Autoencoder,
    Batch,
    Encoder,
    brackets,
    convolutional,
    copies,
    markov,
    mlp,
    next_token,
    pictures,
    regression,
    transformer,
    with_low_rank,
)  # fmt: skip
from benchmarks.alarm_table.training import Case, Training
from benchmarks.small_optimizers import Lion, Muon

Optimize = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def adamw(lr: float = 3e-3, decay: float = 0.01) -> Optimize:
    return lambda parameters: torch.optim.AdamW(parameters, lr=lr, weight_decay=decay)


def sgd(lr: float = 0.3, momentum: float = 0.9, decay: float = 0.0) -> Optimize:
    return lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=decay)


def warm(steps: int) -> Callable[[int], float]:
    return lambda step: min(1.0, step / steps)


def cosine(warmup: int, total: int) -> Callable[[int], float]:
    return lambda step: min(step / warmup, 0.5 + 0.5 * math.cos(math.pi * min(1.0, step / total)))


def stable_then_down(warmup: int, total: int) -> Callable[[int], float]:
    return lambda step: min(1.0, step / warmup, max(0.0, (total - step) / (0.2 * total)))


def language(
    batch: Callable[[int], Batch] = markov,
    build: Callable[[], nn.Module] = transformer,
    optimize: Optimize = adamw(),
    **more: object,
) -> Callable[[int], Training]:
    """A language model's training."""

    def make(seed: int) -> Training:
        model = build()
        loss = next_token(model, batch(seed))
        return Training(model, [optimize(trained(model))], [loss], **more)  # type: ignore[arg-type]

    return make


def addition(optimize: Optimize) -> Callable[[int], Training]:
    def make(seed: int) -> Training:
        model = Addition()
        return Training(model, [optimize(trained(model))], [model.loss(seed)])

    return make


def function_fit(optimize: Optimize, depth: int = 4, **more: object) -> Callable[[int], Training]:
    def make(seed: int) -> Training:
        model = mlp(depth=depth)
        return Training(model, [optimize(trained(model))], [regression(model, seed)], **more)  # type: ignore[arg-type]

    return make


def picture_classes(optimize: Optimize) -> Callable[[int], Training]:
    def make(seed: int) -> Training:
        model = convolutional()

        def loss(step: int) -> torch.Tensor:
            x, kind = pictures(seed, step)
            return functional.cross_entropy(model(x), kind)

        return Training(model, [optimize(trained(model))], [loss])

    return make


def autoencoder(optimize: Optimize) -> Callable[[int], Training]:
    def make(seed: int) -> Training:
        model = Autoencoder()
        return Training(model, [optimize(trained(model))], [lambda step: model(pictures(seed, step)[0])])

    return make


def adversaries(lr: float) -> Callable[[int], Training]:
    def make(seed: int) -> Training:
        model = Adversaries()
        pair = [
            torch.optim.Adam(part.parameters(), lr=lr, betas=(0.5, 0.9)) for part in (model.judge, model.make)
        ]
        return Training(model, pair, [model.judge_loss, model.make_loss])

    return make


def fine_tuned(optimize: Optimize) -> Callable[[int], Training]:
    """LoRA on a transformer that was trained a little before."""

    def make(seed: int) -> Training:
        before = language()(seed + 1)
        for step in range(1, 60):
            before.step(step)
        model = with_low_rank(before.model)  # type: ignore[arg-type]
        return Training(model, [optimize(trained(model))], [next_token(model, markov(seed))])

    return make


def half_frozen(optimize: Optimize) -> Callable[[int], Training]:
    def make(seed: int) -> Training:
        model = transformer()
        model.tok_emb.requires_grad_(False)
        model.blocks[0].requires_grad_(False)
        return Training(model, [optimize(trained(model))], [next_token(model, markov(seed))])

    return make


def adafactor(lr: float) -> Optimize:
    return lambda parameters: torch.optim.Adafactor(parameters, lr=lr)


bfloat_encoder = language(build=lambda: Encoder().to(torch.bfloat16), optimize=adamw(1e-3))

TUNED = (
    Case("transformer, AdamW", language()),
    Case("transformer, AdamW, warmup and cosine, clipping", language(rate=cosine(30, 300), clip=1.0)),
    Case("transformer, AdamW, WSD, every 10th", language(rate=stable_then_down(50, 500)), 500, ns.every(10)),
    Case("transformer, SGD", language(optimize=sgd())),
    Case("transformer, SGD, warmup", language(optimize=sgd(0.5), rate=warm(60))),
    Case("transformer, Muon", language(optimize=lambda p: Muon(p, lr=0.01))),
    Case("transformer, Lion", language(optimize=lambda p: Lion(p, lr=5e-4, weight_decay=0.1))),
    Case("transformer, Adafactor", language(optimize=adafactor(0.01))),
    Case("transformer, weight decay 10", language(optimize=adamw(1e-3, 10.0))),
    Case(
        "transformer, weight decay 0, logarithmic",
        language(optimize=adamw(3e-3, 0.0)),
        500,
        ns.logarithmic(40),
    ),
    Case("transformer, high rate", language(optimize=adamw(1e-2))),
    Case("transformer, tied, RMS norm", language(build=lambda: transformer(norm="rms", tied=True))),
    Case("transformer, post norm, warmup", language(build=lambda: transformer(norm="post"), rate=warm(50))),
    Case("encoder with dropout", language(build=Encoder)),
    Case("brackets", language(brackets), 200),
    Case("copies, learned in jumps", language(copies), 400, ns.every(2)),
    Case(
        "transformer, bfloat16",
        language(build=lambda: transformer().to(torch.bfloat16), optimize=adamw(1e-3)),
    ),
    Case("modular addition, weight decay 1", addition(adamw(3e-3, 1.0)), 1000, ns.every(5)),
    Case("modular addition, logarithmic", addition(adamw(1e-3, 0.1)), 1500, ns.logarithmic(40)),
    Case("MLP, Adam", function_fit(adamw(1e-3, 0.0))),
    Case("MLP, SGD, not logged", function_fit(sgd(0.02)), logged=False),
    Case("convolutions", picture_classes(adamw(1e-3))),
    Case("variational autoencoder", autoencoder(adamw(1e-3))),
    Case("adversaries, two optimizers", adversaries(1e-3), 400),
    Case("LoRA", fine_tuned(adamw(3e-3, 0.0))),
    Case("half frozen", half_frozen(adamw())),
    Case("accumulation", language(optimize=adamw(), accumulate=4), 150),
    Case("transformer, not logged", language(), logged=False),
)
"""Thresholds were chosen with these."""

KEPT_APART = (
    Case(
        "wide transformer",
        language(build=lambda: transformer(64, 2), optimize=adamw(1e-3, 0.1)),
        200,
        seed=50,
    ),
    Case("deep narrow transformer", language(build=lambda: transformer(16, 8), rate=warm(40)), 250, seed=51),
    Case(
        "transformer, NAdam, cosine",
        language(optimize=lambda p: torch.optim.NAdam(p, lr=2e-3), rate=cosine(20, 300)),
        seed=52,
    ),
    Case("transformer, RMSprop", language(optimize=lambda p: torch.optim.RMSprop(p, lr=5e-4)), seed=53),
    Case("transformer, Adagrad", language(optimize=lambda p: torch.optim.Adagrad(p, lr=0.02)), seed=54),
    Case(
        "transformer, Muon, WSD",
        language(optimize=lambda p: Muon(p, lr=0.003), rate=stable_then_down(20, 400)),
        400,
        ns.every(4),
        seed=55,
    ),
    Case(
        "post-norm encoder, no dropout",
        language(build=lambda: Encoder(dropout=0.0, first=False), rate=warm(40)),
        seed=56,
    ),
    Case("brackets, SGD", language(brackets, optimize=sgd(0.2)), 200, seed=57),
    Case(
        "copies, high rate, logarithmic",
        language(copies, optimize=adamw(6e-3)),
        800,
        ns.logarithmic(60),
        seed=58,
    ),
    Case("MLP of two layers, Lion", function_fit(lambda p: Lion(p, lr=3e-4, weight_decay=0.0), 2), seed=59),
    Case(
        "MLP, steps of the rate", function_fit(adamw(3e-3), 6, rate=lambda s: 0.1 ** (s // 150)), 450, seed=60
    ),
    Case("convolutions, SGD", picture_classes(sgd(0.05, decay=5e-4)), 300, seed=61),
    Case("autoencoder, not logged", autoencoder(adamw(3e-3, 0.0)), 400, ns.every(2), seed=62, logged=False),
    Case("adversaries, slower", adversaries(3e-4), 600, ns.every(3), seed=63),
    Case("LoRA, SGD", fine_tuned(sgd(0.1)), 200, seed=64),
    Case(
        "modular addition, no decay, not logged",
        addition(adamw(1e-3, 0.0)),
        1500,
        ns.every(10),
        seed=65,
        logged=False,
    ),
    Case("modular addition, SGD", addition(sgd(0.1)), 1500, ns.logarithmic(60), seed=66),
    Case("noisy batches of two", language(lambda s: markov(s, 2), optimize=adamw(1e-3)), 400, seed=67),
    Case("weight decay 3, cosine", language(optimize=adamw(3e-3, 3.0), rate=cosine(10, 300)), seed=68),
    Case("cyclic rate", language(rate=lambda s: 0.55 + 0.45 * math.sin(s / 15)), 400, seed=69),
)
"""Other kinds and other seeds, looked at after that; two of them led to changes."""

FRESH = (
    *(case.with_seed(300) for case in (*TUNED[::2], *KEPT_APART[::2])),
    Case("brackets, Muon", language(brackets, optimize=lambda p: Muon(p, lr=0.005)), seed=401),
    Case(
        "copies, Lion", language(copies, optimize=lambda p: Lion(p, lr=4e-4, weight_decay=0.0)), 300, seed=402
    ),
    Case(
        "copies, SGD, post norm", language(copies, lambda: transformer(norm="post"), sgd(0.1)), 300, seed=403
    ),
    Case("encoder, Adafactor", language(build=Encoder, optimize=adafactor(0.01), rate=warm(20)), seed=404),
    Case("bfloat16 encoder, every 3rd", bfloat_encoder, 300, ns.every(3), seed=405),
    Case(
        "addition, Lion", addition(lambda p: Lion(p, lr=3e-4, weight_decay=1.0)), 800, ns.every(4), seed=406
    ),
    Case("convolutions, Muon", picture_classes(lambda p: Muon(p, lr=0.003)), seed=407),
    Case("autoencoder, SGD", autoencoder(sgd(1e-4)), seed=408),
)
"""Looked at once, at the end."""
