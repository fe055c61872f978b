"""Healthy trainings whose loss may rise: a harder task, an opponent that learns, a target that moves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

import normscope as ns
from benchmarks.alarm_table.healthy import Optimize, adamw, language, sgd, trained
from benchmarks.alarm_table.models import (
    VOCABULARY,
    Adversaries,
    Autoencoder,
    Batch,
    brackets,
    convolutional,
    generator,
    markov,
    mlp,
    pictures,
    transformer,
)  # fmt: skip
from benchmarks.alarm_table.training import Case, Training

Make = Callable[[int], Training]


def one_loss(
    build: Callable[[], nn.Module],
    optimize: Optimize,
    loss: Callable[[nn.Module, int], Callable[[int], Tensor]],
) -> Make:
    """A training of one model with one optimizer; `loss` is made from the model and a seed."""

    def make(seed: int) -> Training:
        model = build()
        return Training(model, [optimize(trained(model))], [loss(model, seed)])

    return make


def annealed(optimize: Optimize, ramp: int) -> Make:
    """A variational autoencoder whose divergence counts more and more, up to its full weight."""

    def loss(model: nn.Module, seed: int) -> Callable[[int], Tensor]:
        def value(step: int) -> Tensor:
            x = pictures(seed, step)[0]
            mean, log_variance = model.encode(x).chunk(2, 1)  # type: ignore[operator]
            z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
            fit = functional.mse_loss(model.decode(z), x.flatten(1), reduction="sum") / len(x)  # type: ignore[operator]
            divergence = 0.5 * (log_variance.exp() + mean**2 - 1 - log_variance).sum() / len(x)
            return fit + min(1.0, step / ramp) * divergence

        return value

    return one_loss(Autoencoder, optimize, loss)


def critics(lr: float, kind: str) -> Make:
    """A generator and a critic with the hinge loss, or with Wasserstein's and clipped weights."""

    def make(seed: int) -> Training:
        model = Adversaries()
        pair = [torch.optim.Adam(p.parameters(), lr=lr, betas=(0.5, 0.9)) for p in (model.judge, model.make)]

        def judged() -> tuple[Tensor, Tensor]:
            angle = 6.28 * torch.rand(64)
            real = torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(64, 2)
            return model.judge(real), model.judge(model.make(torch.randn(64, 4)).detach())

        def critic(step: int) -> Tensor:
            if kind == "wasserstein":
                with torch.no_grad():
                    for parameter in model.judge.parameters():
                        parameter.clamp_(-0.3, 0.3)
                real, fake = judged()
                return fake.mean() - real.mean()
            real, fake = judged()
            return torch.relu(1 - real).mean() + torch.relu(1 + fake).mean()

        return Training(
            model, pair, [critic, lambda step: -model.judge(model.make(torch.randn(64, 4))).mean()]
        )

    return make


def policy(optimize: Optimize, critic: bool) -> Make:
    """Policy gradients on a bandit with contexts; the loss says little about how good the policy is."""

    def loss(model: nn.Module, seed: int) -> Callable[[int], Tensor]:
        best = torch.randn(16, 4, generator=generator(seed, 0))

        def value(step: int) -> Tensor:
            x = torch.randn(64, 16, generator=generator(seed, step))
            out = model(x)
            chosen = torch.distributions.Categorical(logits=out[:, :4])
            action = chosen.sample()
            reward = ((x @ best).argmax(1) == action).float() + 0.1 * torch.randn(64)
            base = out[:, 4] if critic else reward.mean()
            gain = -(chosen.log_prob(action) * (reward - base).detach()).mean()
            return gain + (0.5 * functional.mse_loss(out[:, 4], reward) if critic else 0.0)

        return value

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5))

    return one_loss(build, optimize, loss)


def values(optimize: Optimize, every: int) -> Make:
    """Q-learning with a target network that is copied now and then: the loss rises as values grow."""

    def loss(model: nn.Module, seed: int) -> Callable[[int], Tensor]:
        g = generator(seed, 0)
        move, pay = torch.randn(3, 8, 8, generator=g) / 8**0.5, torch.randn(8, generator=g)
        target = mlp(32, 2, 8)
        target[-1] = nn.Linear(32, 3)

        def value(step: int) -> Tensor:
            if step % every == 1:
                target.load_state_dict(model.state_dict())
            g = generator(seed, step)
            x, action = torch.randn(64, 8, generator=g), torch.randint(0, 3, (64,), generator=g)
            then = torch.tanh(torch.einsum("bi,bij->bj", x, move[action]))
            with torch.no_grad():
                wanted = then @ pay + 0.95 * target(then).max(1).values
            return functional.smooth_l1_loss(model(x).gather(1, action[:, None])[:, 0], wanted)

        return value

    def build() -> nn.Module:
        model = mlp(32, 2, 8)
        model[-1] = nn.Linear(32, 3)
        return model

    return one_loss(build, optimize, loss)


def harder(optimize: Optimize, most: float, ramp: int) -> Make:
    """A curriculum: more and more tokens are replaced by random ones, up to a share."""

    def loss(model: nn.Module, seed: int) -> Callable[[int], Tensor]:
        batch = markov(seed)

        def value(step: int) -> Tensor:
            tokens, g = batch(step), generator(seed + 1, step)
            noise = torch.rand(tokens.shape, generator=g) < most * min(1.0, step / ramp)
            tokens = torch.where(noise, torch.randint(0, VOCABULARY, tokens.shape, generator=g), tokens)
            logits = model(tokens)[:, :-1]
            return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

        return value

    return one_loss(transformer, optimize, loss)


def restarts(period: int) -> Callable[[int], float]:
    """Cosine with warm restarts."""
    return lambda step: 0.5 + 0.5 * math.cos(math.pi * (step % period) / period)


def wrong_labels(optimize: Optimize, share: float) -> Make:
    def loss(model: nn.Module, seed: int) -> Callable[[int], Tensor]:
        def value(step: int) -> Tensor:
            x, kind = pictures(seed, step)
            g = generator(seed + 1, step)
            wrong = torch.rand(len(kind), generator=g) < share
            kind = torch.where(wrong, torch.randint(0, 10, kind.shape, generator=g), kind)
            return functional.cross_entropy(model(x), kind)

        return value

    return one_loss(convolutional, optimize, loss)


class TwoViews(nn.Module):
    """Embeds two noisy views of a picture; a learned temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return functional.normalize(self.embed(x), dim=1)


def contrast(optimize: Optimize) -> Make:
    def loss(model: nn.Module, seed: int) -> Callable[[int], Tensor]:
        def value(step: int) -> Tensor:
            x = torch.randn(32, 1, 8, 8, generator=generator(seed, step))
            a, b = (model(x + 0.5 * torch.randn_like(x)) for _ in range(2))
            return functional.cross_entropy(model.scale.exp() * (a @ b.T), torch.arange(32))  # type: ignore[operator]

        return value

    return one_loss(TwoViews, optimize, loss)


def teacher(optimize: Optimize, decay: float) -> Make:
    """A student that follows a moving average of itself, seen through a predictor, as in BYOL."""

    def loss(model: nn.Module, seed: int) -> Callable[[int], Tensor]:
        parts = list(model.children())
        student, slow = parts[0], nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16))
        slow.load_state_dict(student.state_dict())

        def value(step: int) -> Tensor:
            x = pictures(seed, step)[0]
            with torch.no_grad():
                for mine, theirs in zip(slow.parameters(), student.parameters(), strict=True):
                    mine.lerp_(theirs, 1 - decay)
                wanted = functional.normalize(slow(x + 0.3 * torch.randn_like(x)), dim=1)
            seen = functional.normalize(model(x + 0.3 * torch.randn_like(x)), dim=1)
            return 2 - 2 * (wanted * seen).sum(1).mean()

        return value

    def build() -> nn.Module:
        student = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16))
        return nn.Sequential(student, nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)))

    return one_loss(build, optimize, loss)


def attacked(optimize: Optimize, most: float, ramp: int) -> Make:
    """Training on pictures that were changed against the model, more and more."""

    def loss(model: nn.Module, seed: int) -> Callable[[int], Tensor]:
        def value(step: int) -> Tensor:
            x, kind = pictures(seed, step)
            x.requires_grad_()
            (slope,) = torch.autograd.grad(functional.cross_entropy(model(x), kind), x)
            x = x.detach() + most * min(1.0, step / ramp) * slope.sign()
            return functional.cross_entropy(model(x), kind)

        return value

    return one_loss(convolutional, optimize, loss)


def mixed(optimize: Optimize, batches: Sequence[Callable[[int], Batch]], period: int) -> Make:
    """Several sources of data in turns, each for a while: the loss jumps between their levels."""

    def loss(model: nn.Module, seed: int) -> Callable[[int], Tensor]:
        sources = [batch(seed + i) for i, batch in enumerate(batches)]

        def value(step: int) -> Tensor:
            tokens = sources[step // period % len(sources)](step)
            return functional.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

        return value

    return one_loss(transformer, optimize, loss)


HEALTHY = (
    Case("autoencoder, annealed", annealed(adamw(1e-3), 150), 300, seed=1000),
    Case("autoencoder, annealed fast", annealed(adamw(3e-3), 40), 200, seed=1007),
    Case("hinge adversaries", critics(1e-3, "hinge"), 400, seed=1014),
    Case("hinge adversaries, slower, every 3rd", critics(2e-4, "hinge"), 600, ns.every(3), seed=1021),
    Case("Wasserstein adversaries", critics(5e-4, "wasserstein"), 400, seed=1028),
    Case("Wasserstein adversaries, fast", critics(2e-3, "wasserstein"), 300, seed=1035),
    Case("policy gradient", policy(adamw(1e-3), False), 400, seed=1042),
    Case("actor and critic", policy(adamw(3e-3), True), 400, seed=1049),
    Case("policy gradient, SGD", policy(sgd(0.05), False), 400, seed=1056),
    Case("curriculum", harder(adamw(1e-3), 0.3, 300), 350, seed=1084),
    Case("curriculum, short", harder(adamw(3e-3), 0.2, 60), 200, seed=1098),
    Case("warm restarts", language(rate=restarts(60)), 300, seed=1105),
    Case("warm restarts, SGD", language(optimize=sgd(0.5), rate=restarts(100)), 300, seed=1112),
    Case("wrong labels", wrong_labels(adamw(1e-3), 0.3), 300, seed=1119),
    Case("wrong labels, SGD", wrong_labels(sgd(0.05), 0.5), 300, seed=1126),
    Case("contrast", contrast(adamw(1e-3)), 300, seed=1133),
    Case("contrast, high rate", contrast(adamw(1e-2)), 300, seed=1140),
    Case("own average as teacher", teacher(adamw(1e-3), 0.99), 300, seed=1147),
    Case("own average as teacher, fast", teacher(adamw(3e-3), 0.9), 300, seed=1154),
    Case("attacked pictures", attacked(adamw(1e-3), 0.3, 200), 300, seed=1168),
    Case("attacked pictures, fast", attacked(adamw(3e-3), 0.5, 50), 250, seed=1175),
    Case("two sources in turns", mixed(adamw(2e-3), (markov, brackets), 1), 300, seed=1182),
    Case("weight decay 30", language(optimize=adamw(1e-3, 30.0)), 200, seed=1189),
    Case("batches of one", language(lambda s: markov(s, 1), optimize=adamw(3e-3)), 400, seed=1203),
)
"""The rule `ascent`, and when a loss may rise, were chosen with these."""
NOT_SILENT = (
    Case("curriculum to half noise", harder(adamw(3e-3), 0.5, 200), 300, seed=1091),
    Case("Q-learning", values(adamw(1e-3), 50), 500, seed=1063),
    Case("Q-learning, slower, every 2nd", values(adamw(3e-4), 100), 800, ns.every(2), seed=1070),
    Case("Q-learning, faster", values(adamw(3e-3), 10), 400, seed=1077),
)
"""Their loss rises as that of a training that diverges does, with its gradients: they do raise alarms."""
