"""What an experiment will cost on this machine: a few measured updates, times the number of updates.

Costs are seconds of one core. They are estimates: updates are timed once, on an otherwise idle core or not.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from normscope.lab.config import TrainConfig
from normscope.lab.model import ModelConfig, Transformer
from normscope.lab.one_thread import one_thread
from normscope.replication.trials.trained_networks import training_plan
from normscope.replication.trials.trial_context import TrialContext
from normscope.schedule import NEVER

TIMED_UPDATES = 3  # and no more of them once they have taken a second
TIMING_SECONDS = 1.0
SATURATION_PASSES = 90  # forward passes over the held-out batches that one measurement of saturation takes
SATURATION_SECONDS = 1.0  # and what it takes however small the model is
SECONDS_PER_TRIAL = {"series": 5.0, "scaling": 4.0, "pretrained": 25.0}  # as measured on one core
WIKITEXT_TOKENS, WIKITEXT_WORDS = 2_088_628, 33_278  # WikiText-2, what the preset full is meant for


@dataclass(frozen=True)
class TrialCost:
    """How many trials, and how many seconds of one core they take."""

    trials: int
    seconds: float


def experiment_cost(kind: str, settings: Mapping[str, Any], context: TrialContext) -> TrialCost:
    """Estimate the cost of an experiment, from updates that are timed here and now."""
    if kind in SECONDS_PER_TRIAL:
        trials = math.prod(len(values) for values in settings["vary"].values()) * context.seeds
        trials = trials if kind != "series" else 1
        return TrialCost(trials, trials * SECONDS_PER_TRIAL[kind])
    fields = {name: value for name, value in settings.items() if name not in ("prefixes", "needs")}
    configs = training_plan(fields, context).configs
    return TrialCost(len(configs), math.fsum(_training_seconds(config) for config in configs))


def cores() -> int:
    """How many trainings run at once on this machine."""
    return os.cpu_count() or 1


def _training_seconds(config: TrainConfig) -> float:
    words = config.data.tokenizer == "word" and config.data.task is None
    vocabulary = WIKITEXT_WORDS if words else 256
    model = replace(config.model, vocab_size=vocabulary, mask="causal", norm="pre", positions="learned")
    length = config.data.length
    model = replace(model, max_length=max(length, 1))
    update = _update_seconds(model, length, config.batch)
    steps = config.steps
    if config.epochs is not None:
        steps = math.ceil(config.epochs * WIKITEXT_TOKENS / length / (config.batch * config.accumulate))
    measured = 0.0
    if config.saturation != NEVER:
        times = sum(step in config.saturation for step in range(steps)) + 1
        measured = times * (SATURATION_SECONDS + SATURATION_PASSES * config.eval_batches * update / 3)
    return steps * config.accumulate * update + measured


@cache
def _update_seconds(model: ModelConfig, length: int, batch: int) -> float:
    """Seconds of one update with one thread, the smallest of a few."""
    generator = torch.get_rng_state()
    try:
        with one_thread():
            return min(_timed_updates(model, length, batch))
    finally:
        torch.set_rng_state(generator)


def _timed_updates(model: ModelConfig, length: int, batch: int) -> Sequence[float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = Transformer(model)
    optimizer = torch.optim.AdamW(network.parameters(), fused=True)
    ids = torch.randint(model.vocab_size, (batch, length))
    seconds: list[float] = []
    while len(seconds) < TIMED_UPDATES and sum(seconds) < TIMING_SECONDS:
        began = time.perf_counter()
        logits = network(ids)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - began)
    return seconds


def shown_time(seconds: float) -> str:
    """A duration for a person.

    >>> shown_time(40), shown_time(600), shown_time(9000), shown_time(864000)
    ('40 s', '10 min', '2.5 h', '10 days')
    """
    for unit, size, until in (("s", 1, 100), ("min", 60, 6000), ("h", 3600, 172_800)):
        if seconds < until:
            return f"{_rounded(seconds / size)} {unit}"
    return f"{_rounded(seconds / 86_400)} days"


def _rounded(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")
