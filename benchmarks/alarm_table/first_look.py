"""Trainings of kinds that no rule was chosen with, healthy and diverging: looked at once, at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

import normscope as ns
from benchmarks.alarm_table.faults import DIVERGES, JUMPS, Named, from_now_on, rate_times
from benchmarks.alarm_table.healthy import Optimize, adamw, cosine, language, sgd, trained, warm
from benchmarks.alarm_table.models import (
    VOCABULARY,
    Adversaries,
    Encoder,
    brackets,
    convolutional,
    copies,
    generator,
    markov,
    mlp,
    next_token,
    pictures,
    transformer,
)  # fmt: skip
from benchmarks.alarm_table.moving_targets import Make, one_loss
from benchmarks.alarm_table.training import EVERY_STEP, Case, Fault, Training
from benchmarks.small_optimizers import Lion, Muon

Value = Callable[[int], Tensor]


class Recurrent(nn.Module):
    """A language model with a recurrent layer."""

    def __init__(self, width: int = 32, kind: type[nn.RNNBase] = nn.GRU) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.recur = kind(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.recur(self.embed(tokens))[0])


def masked(optimize: Optimize, share: float = 0.2) -> Make:
    """Predict tokens that were masked, from both sides."""

    class Bidirectional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY + 1, 24)
            layer = nn.TransformerEncoderLayer(24, 4, 48, 0.0, batch_first=True, norm_first=True)
            self.layers = nn.ModuleList([layer])
            self.head = nn.Linear(24, VOCABULARY)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.layers[0](self.embed(tokens)))

    def loss(model: nn.Module, seed: int) -> Value:
        batch = markov(seed)

        def value(step: int) -> Tensor:
            tokens = batch(step)
            hidden = torch.rand(tokens.shape, generator=generator(seed, step)) < share
            logits = model(torch.where(hidden, VOCABULARY, tokens))
            return functional.cross_entropy(logits[hidden], tokens[hidden])

        return value

    return one_loss(Bidirectional, optimize, loss)


def ring(step: int, seed: int, size: int = 64) -> Tensor:
    g = generator(seed, step)
    angle = 6.28 * torch.rand(size, generator=g)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(size, 2, generator=g)


def diffusion(optimize: Optimize) -> Make:
    """Predict the noise in noisy points of a ring."""

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))

    def loss(model: nn.Module, seed: int) -> Value:
        def value(step: int) -> Tensor:
            x, g = ring(step, seed), generator(seed + 1, step)
            noise, time = torch.randn(x.shape, generator=g), torch.rand(len(x), 1, generator=g)
            seen = (1 - time).sqrt() * x + time.sqrt() * noise
            return functional.mse_loss(model(torch.cat([seen, time], 1)), noise)

        return value

    return one_loss(build, optimize, loss)


class Flow(nn.Module):
    """Two coupling layers: the density of points, whose negative logarithm may be negative."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 2)) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        total = x.new_zeros(len(x))
        for i, net in enumerate(self.nets):
            a, b = x[:, i % 2 : i % 2 + 1], x[:, 1 - i % 2 : 2 - i % 2]
            scale, shift = net(a).chunk(2, 1)
            b = b * torch.tanh(scale).exp() + shift
            total = total + torch.tanh(scale)[:, 0]
            x = torch.cat([a, b] if i % 2 == 0 else [b, a], 1)
        return (0.5 * (x**2).sum(1) + 1.84 - total).mean()


def flow(optimize: Optimize) -> Make:
    return one_loss(Flow, optimize, lambda model, seed: lambda step: model(0.3 * ring(step, seed)))


def triplets(optimize: Optimize) -> Make:
    def build() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))

    def loss(model: nn.Module, seed: int) -> Value:
        def value(step: int) -> Tensor:
            x, kind = pictures(seed, step)
            out = functional.normalize(model(x), dim=1)
            far = torch.cdist(out, out)
            same = kind[:, None] == kind[None]
            return torch.relu(far[same].mean() - far[~same] + 0.5).mean()

        return value

    return one_loss(build, optimize, loss)


def distilled(optimize: Optimize) -> Make:
    """A student learns the outputs of a fixed random network."""

    def loss(model: nn.Module, seed: int) -> Value:
        master = mlp(96, 2)

        def value(step: int) -> Tensor:
            x = torch.randn(64, 16, generator=generator(seed, step))
            with torch.no_grad():
                wanted = 5 * master(x)
            return functional.mse_loss(model(x), wanted)

        return value

    return one_loss(lambda: mlp(32, 3), optimize, loss)


def mixed_up(optimize: Optimize) -> Make:
    """Mixup with label smoothing."""

    def loss(model: nn.Module, seed: int) -> Value:
        def value(step: int) -> Tensor:
            x, kind = pictures(seed, step)
            part = torch.rand((), generator=generator(seed + 1, step))
            logits = model(part * x + (1 - part) * x.flip(0))
            first, second = (
                functional.cross_entropy(logits, k, label_smoothing=0.1) for k in (kind, kind.flip(0))
            )
            return part * first + (1 - part) * second

        return value

    return one_loss(convolutional, optimize, loss)


def sparse_code(optimize: Optimize) -> Make:
    def build() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))

    def loss(model: nn.Module, seed: int) -> Value:
        def value(step: int) -> Tensor:
            x = pictures(seed, step)[0]
            code = model[:3](x)  # type: ignore[index]
            return functional.mse_loss(model[3](code), x.flatten(1)) + 0.01 * code.abs().mean()  # type: ignore[index]

        return value

    return one_loss(build, optimize, loss)


def two_tasks(optimize: Optimize) -> Make:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 11))

    def loss(model: nn.Module, seed: int) -> Value:
        g = generator(seed, 0)
        w, v = torch.randn(16, generator=g), torch.randn(16, 10, generator=g)

        def value(step: int) -> Tensor:
            x = torch.randn(64, 16, generator=generator(seed, step))
            out = model(x)
            return functional.huber_loss(out[:, 0], torch.sin(x @ w)) + functional.cross_entropy(
                out[:, 1:], (x @ v).argmax(1)
            )

        return value

    return one_loss(build, optimize, loss)


def muon_and_adamw(seed: int) -> Training:
    """One loss, two optimizers: matrices of the blocks by Muon, the rest by AdamW."""
    model = transformer()
    named = list(model.named_parameters())
    matrices = [p for name, p in named if "blocks" in name and p.ndim == 2]
    rest = [p for name, p in named if not ("blocks" in name and p.ndim == 2)]
    pair = [Muon(matrices, lr=3e-3), torch.optim.AdamW(rest, lr=1e-3)]
    loss = next_token(model, markov(seed))
    return Training(model, pair, [loss, loss])


def least_squares(lr: float, slower: float) -> Make:
    """Adversaries with least squares and two rates."""

    def make(seed: int) -> Training:
        model = Adversaries()
        judge = torch.optim.Adam(model.judge.parameters(), lr=lr, betas=(0.5, 0.99))
        maker = torch.optim.Adam(model.make.parameters(), lr=slower * lr, betas=(0.5, 0.99))

        def critic(step: int) -> Tensor:
            fake = model.make(torch.randn(64, 4)).detach()
            return (model.judge(ring(step, seed)) - 1).square().mean() + model.judge(fake).square().mean()

        def fool(step: int) -> Tensor:
            return (model.judge(model.make(torch.randn(64, 4))) - 1).square().mean()

        return Training(model, [judge, maker], [critic, fool])

    return make


def one_cycle(total: int) -> Callable[[int], float]:
    return lambda step: min(0.1 + 1.8 * step / total, max(0.0, 2 * (1 - step / total)))


def nesterov(lr: float) -> Optimize:
    return lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9, nesterov=True)


def of(kind: type[torch.optim.Optimizer], **options: float | bool) -> Optimize:
    return lambda parameters: kind(parameters, **options)


def recurrent(optimize: Optimize, kind: type[nn.RNNBase] = nn.GRU, **more: object) -> Make:
    return language(build=lambda: Recurrent(kind=kind), optimize=optimize, **more)


HEALTHY = (
    Case("GRU", recurrent(adamw(3e-3)), 250, seed=5001),
    Case("LSTM, clipping", recurrent(adamw(1e-2), nn.LSTM, clip=0.5), 250, seed=5002),
    Case("GRU, SGD, Nesterov", recurrent(nesterov(0.3)), 250, seed=5003),
    Case("masked tokens", masked(adamw(2e-3)), 250, seed=5004),
    Case("masked tokens, half of them", masked(adamw(1e-3), 0.5), 250, seed=5005),
    Case("diffusion", diffusion(adamw(1e-3)), 400, seed=5006),
    Case(
        "diffusion, Lion, every 3rd",
        diffusion(lambda p: Lion(p, lr=3e-4, weight_decay=0.0)),
        450,
        ns.every(3),
        seed=5007,
    ),
    Case("flow", flow(adamw(1e-3)), 400, seed=5008),
    Case("flow, high rate", flow(adamw(1e-2, 0.0)), 300, seed=5009),
    Case("triplets", triplets(adamw(1e-3)), 250, seed=5010),
    Case("distillation", distilled(adamw(2e-3)), 300, seed=5011),
    Case("distillation, SGD", distilled(sgd(0.002)), 300, seed=5012),
    Case("mixup", mixed_up(adamw(2e-3)), 250, seed=5013),
    Case("sparse code", sparse_code(adamw(1e-3)), 300, seed=5014),
    Case("two tasks", two_tasks(adamw(1e-3)), 300, seed=5015),
    Case("two tasks, Adamax", two_tasks(of(torch.optim.Adamax, lr=3e-3)), 300, seed=5016),
    Case("Muon and AdamW", muon_and_adamw, 200, seed=5017),
    Case("least-squares adversaries", least_squares(1e-3, 0.3), 400, seed=5018),
    Case("least-squares adversaries, fast maker", least_squares(5e-4, 3.0), 400, seed=5019),
    Case("one cycle", language(optimize=sgd(0.3), rate=one_cycle(250)), 250, seed=5020),
    Case("AMSGrad", language(optimize=of(torch.optim.Adam, lr=3e-3, amsgrad=True)), 200, seed=5021),
    Case("brackets, RAdam", language(brackets, optimize=of(torch.optim.RAdam, lr=3e-3)), 200, seed=5022),
    Case(
        "copies, post norm, warmup",
        language(copies, lambda: transformer(norm="post"), adamw(2e-3), rate=warm(60)),
        350,
        seed=5023,
    ),
    Case(
        "encoder, half dropped out",
        language(build=lambda: Encoder(dropout=0.5), optimize=adamw(2e-3)),
        200,
        seed=5024,
    ),
    Case(
        "cosine to nothing, every 2nd",
        language(optimize=adamw(5e-3, 0.3), rate=cosine(25, 400)),
        400,
        ns.every(2),
        seed=5025,
    ),
)


def _maximize(training: Training) -> None:
    for optimizer in training.optimizers:
        for group in optimizer.param_groups:
            group["maximize"] = True


def _flip_gradients(training: Training) -> None:
    for parameter in trained(training.model):
        parameter.register_hook(torch.neg)


def _up(training: Training) -> None:
    training.ascends = True


ASCENTS: Sequence[tuple[str, Make, Callable[[Training], None], int]] = (
    ("GRU, AdamW 1e-3", recurrent(adamw(1e-3)), _up, 150),
    ("LSTM, Nesterov", recurrent(nesterov(0.1), nn.LSTM), _flip_gradients, 180),
    ("masked tokens, AdamW 1e-3", masked(adamw(1e-3)), _maximize, 160),
    ("diffusion, AdamW 1e-3", diffusion(adamw(1e-3)), _up, 170),
    ("flow, AdamW 1e-3", flow(adamw(1e-3)), _maximize, 200),
    ("distillation, AdamW 5e-4", distilled(adamw(5e-4)), _flip_gradients, 140),
    ("two tasks, Adamax", two_tasks(of(torch.optim.Adamax, lr=2e-3)), _up, 150),
    ("mixup, AdamW 1e-3", mixed_up(adamw(1e-3)), _up, 130),
    (
        "transformer, AMSGrad 1e-3",
        language(optimize=of(torch.optim.Adam, lr=1e-3, amsgrad=True)),
        _maximize,
        150,
    ),
    ("transformer, RAdam 5e-4", language(optimize=of(torch.optim.RAdam, lr=5e-4)), _up, 170),
    ("encoder, AdamW 5e-4", language(build=Encoder, optimize=adamw(5e-4)), _flip_gradients, 150),
    ("transformer, Muon 2e-3", language(optimize=lambda p: Muon(p, lr=2e-3)), _up, 140),
)
RATES: Sequence[tuple[str, Make, float, int]] = (
    ("GRU", recurrent(adamw(3e-3)), 100.0, 120),
    ("masked tokens", masked(adamw(2e-3)), 300.0, 130),
    ("flow", flow(adamw(1e-3)), 1000.0, 140),
    ("two tasks", two_tasks(adamw(1e-3)), 300.0, 110),
    ("transformer, Nesterov", language(optimize=nesterov(0.05)), 100.0, 120),
    ("mixup", mixed_up(adamw(2e-3)), 300.0, 120),
)


def _diverging() -> Iterator[Named]:
    for i, (name, make, change, begins) in enumerate(ASCENTS):
        yield "gradient ascent", DIVERGES, _faulty(name, make, from_now_on(change), begins, 6001 + i)
    for i, (name, make, factor, begins) in enumerate(RATES):
        yield (
            "a rate 100 to 1000 times too high",
            JUMPS,
            _faulty(name, make, rate_times(factor), begins, 6101 + i),
        )


def _faulty(name: str, make: Make, fault: Fault, begins: int, seed: int) -> Case:
    return Case(name, make, begins + 40, EVERY_STEP, seed, fault, begins)


DIVERGING = list(_diverging())
