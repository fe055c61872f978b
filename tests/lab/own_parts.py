"""Parts of a training that a user could have written, all with names that can be imported."""

import torch
from torch import nn
from torch.nn import functional

import normscope as ns

SMALL = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 16, "length": 16, "batch": 2, "eval_batches": 1}


class Bigram(nn.Module):
    """A table of logits, with tied embedding and head."""

    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.d_model)
        self.mix = nn.Linear(config.d_model, config.d_model)
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.mix(self.embed(ids)))


def bigram(config):
    return Bigram(config)


class CountingRows(ns.Dataset):
    """Rows that count upwards, modulo ten."""

    sizes = ns.DataSizes(vocab_size=10, positions=8, max_length=8, sequences=100)

    def batch(self, number, size, seed):
        rows = (torch.arange(size)[:, None] + number + torch.arange(9)) % 10
        return ns.TrainingBatch(rows[:, :-1], rows[:, 1:])

    def loss(self, logits, targets):
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def evaluations(self, batches, size):
        return {"valid": [self.batch(number, size, 0) for number in range(batches)]}

    def score(self, logits, targets):
        right = int((logits.argmax(-1) == targets).sum())
        return ns.ScoreSums(float(self.loss(logits, targets)) * targets.numel(), right, targets.numel())


READY = CountingRows()


def counting_rows(config):
    return CountingRows()


class Pairs(ns.Language):
    """(ab)ⁿ."""

    name, alphabet, start = "pairs", "ab", (0,)

    def follow(self, state):
        return {0: "a", 1: "b", 2: "a."}[state[0]]

    def move(self, state, symbol):
        return (1,) if symbol == "a" else (2,)

    def sample(self, rng, shortest, longest):
        return "ab" * int(rng.integers(max(1, -(-shortest // 2)), longest // 2 + 1))


PAIRS = Pairs()


def half_lr(groups, config):
    return torch.optim.SGD(groups, lr=config.lr / 2, momentum=config.momentum)


class SignDescent(torch.optim.Optimizer):
    """θ ← (1 − ηλ)θ − η·sign(g)."""

    def __init__(self, params, lr=1e-3, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * p.grad.sign())


def doubled_loss(logits, targets):
    return 2 * functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def vector_loss(logits, targets):
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")


def no_biases(model):
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()


class KeepMaximum:
    """Clamps each tensor to the largest entry that it had at the start."""

    def start(self, model):
        self.largest = [p.abs().max().item() for p in model.parameters()]

    def apply(self, model):
        for parameter, largest in zip(model.parameters(), self.largest, strict=True):
            parameter.clamp_(-largest, largest)
