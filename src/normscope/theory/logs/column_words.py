"""What the name of a column says it contains: a table of words, and the rules that read it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

#: Names of step columns, best first: W&B's own counter counts calls of log, which need not be training steps.
STEP_NAMES: tuple[str, ...] = (
    *("global step", "trainer global step", "train global step", "training step", "train step"),
    *("optimizer step", "opt step", "gradient step", "num updates", "update step"),
    *("step", "steps", "iteration", "iterations", "iter", "iters", "itr", "it", "n iter", "num iter"),
    *("num steps", "n steps", "step num", "step number", "current step", "training steps", "train steps"),
    *("train iteration", "train iter", "train steps", "step count"),
    "_step",
)

#: Other quantities that grow with training; they are offered, never used silently.
OTHER_AXES: Mapping[str, str] = {
    "epoch": "epochs",
    "epochs": "epochs",
    "tokens": "tokens",
    "samples": "samples",
    "examples": "examples",
    "sequences": "sequences",
    "timesteps": "steps of an environment",
}


def _words(text: str) -> frozenset[str]:
    """A set of words, and of sequences of words, that are separated by commas."""
    return frozenset(word.strip() for word in text.split(","))


#: kind → words, any of which decides it; looked up in this order, for names that are not called a norm.
KINDS: Mapping[str, frozenset[str]] = {
    "weight decay": _words("weight decay, weightdecay, wd, l2 penalty"),
    "setting": _words(
        "momentum, beta, beta1, beta2, betas, eps, epsilon, dropout, temperature, clip, batch size, "
        "batchsize, bs, loss scale, grad scale, scale, warmup, seq len, world size"
    ),
    "time": _words(
        "time, walltime, timestamp, runtime, elapsed, seconds, secs, sec, ms, date, datetime, duration, "
        "hours, minutes, eta, created, latency, utc, clock"
    ),
    "speed": _words(
        "per second, per sec, sps, tps, its, flops, tflops, mfu, hfu, flos, throughput, gpu, cpu, "
        "memory, mem, ram, disk, network, power, util, utilization, speed"
    ),
    "loss": _words(
        "loss, losses, nll, perplexity, ppl, bpb, bpc, bits, entropy, ce, xent, kl, mse, mae, rmse, "
        "error, err, objective, cost, elbo, logprob, logprobs, likelihood"
    ),
    "score": _words(
        "acc, accuracy, f1, bleu, rouge, auc, auroc, precision, recall, em, score, mrr, exact match, "
        "top1, top5, map, iou, wer, cer, mcc, pearson, spearman, r2, reward, return, returns, correct, "
        "win rate, success, hp metric"
    ),
    "gradient or update": _words(
        "grad, grads, gradient, gradients, gnorm, gradnorm, update, updates, delta, diff, difference, change"
    ),
    "learning rate": _words("lr, lrs, learning rate, learningrate"),
    "epochs": _words("epoch, epochs"),
    "tokens": _words("tokens, samples, examples, sequences, timesteps, consumed, seen"),
    "index": _words("index, idx, unnamed, index level, row, id"),
    "group": _words("seed, rank, trial, fold, worker, device, stage, split"),
}

#: Whole names of columns that tell several series in one table apart.
GROUP_NAMES = _words(
    "layer, head, group, run, run id, run name, seed, rank, trial, fold, worker, device, stage, split, "
    "tensor, name, parameter, param, module, component, role, measure, metric, tag, block, layer idx, "
    "layer index, block idx, model, experiment"
)

#: Words that make a name the name of a norm.
NORM_WORDS = _words("norm, norms, l2, l2norm, rms, frobenius, paramnorm, weightnorm, pnorm")
#: A name with a norm word and one of these is a measurement of something else.
NOT_OF_PARAMETERS: Mapping[str, frozenset[str]] = {
    "gradient or update": KINDS["gradient or update"] | _words("clip, clipped, step norm"),
    "loss": KINDS["loss"] | _words("penalty, regularization, regularizer, reg"),
    "learning rate": KINDS["learning rate"],
    "weight decay": KINDS["weight decay"],
    "score": KINDS["score"],
    "quantity derived from a norm": _words(
        "ratio, std, var, variance, stddev, cosine, similarity, angle, exponent, growth, activation, "
        "activations, act, acts, hidden state, hidden states, logit, logits, momentum, exp avg, moment, "
        "noise, residual stream, attention score, sq, squared, square, count, per second, normalized"
    ),
}
#: Names that contain the word norm and may mean a layer of that name, or a bound: candidates in doubt.
DOUBTFUL = _words(
    "layer norm, batch norm, rms norm, group norm, max norm, min norm, norm max, norm min, norm scale, "
    "norm weight, norm bias, norm gamma, norm beta, log, input, output, query, adam, num, mean, median, "
    "time, runtime, seconds, ms, epoch, epochs, tokens"
)
#: Words beside "lr" that make it another number than the learning rate in use.
NOT_THE_RATE = _words(
    "max, min, base, initial, init, peak, target, final, scale, mult, multiplier, factor, ratio, decay, "
    "schedule, scheduler, momentum, warmup, end, start, norm"
)
BOUNDS = ("__MIN", "__MAX")  # what W&B adds to the names of the columns beside each curve
_WORD = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+|[^\W\d_]+")


def metric(name: str) -> str:
    """The name without the run that W&B puts before it: "my-run - norm" is norm."""
    return name.rpartition(" - ")[2].strip() or name


@cache
def phrase(name: str) -> str:
    """The name in lower case, as words: "train/paramNorm" is "train param norm"."""
    text = metric(name)
    marked = f"{text} norm" if "‖" in text or "||" in text else text
    return " ".join(word.lower() for word in _WORD.findall(marked))


def has(text: str, words: frozenset[str] | Mapping[str, str]) -> bool:
    """Whether one of the words, or of the sequences of words, occurs in the phrase."""
    return any(f" {word} " in f" {text} " for word in words)


def step_rank(name: str) -> int | None:
    """How good a step column the name is, 0 for the best; None for any other column."""
    text = "_step" if metric(name) == "_step" else phrase(name)
    short = text.removeprefix("trainer ").removeprefix("train ")
    return next((STEP_NAMES.index(known) for known in (text, short) if known in STEP_NAMES), None)


def kind_of(name: str) -> str:
    """What a column contains by its name: step, bound, group, norm, doubtful, one of KINDS; "" if unknown."""
    if name.upper().endswith(BOUNDS):
        return "bound"
    if step_rank(name) is not None:
        return "step"
    text = phrase(name)
    if not text:
        return "index"
    if text in GROUP_NAMES:
        return "group"
    if has(text, NORM_WORDS):
        other = next((kind for kind, words in NOT_OF_PARAMETERS.items() if has(text, words)), "")
        return other or ("doubtful" if has(text, DOUBTFUL) else "norm")
    return next((kind for kind, words in KINDS.items() if has(text, words)), "")


def is_rate(name: str) -> bool:
    """Whether the column is the learning rate in use."""
    return kind_of(name) == "learning rate" and not has(phrase(name), NOT_THE_RATE)


def is_decay(name: str) -> bool:
    """Whether the column is the weight decay."""
    return kind_of(name) == "weight decay"
