"""Small networks of different kinds, and what they are trained on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.small_transformer import LENGTH, Shape, SmallTransformer

VOCABULARY = 24
Batch = Callable[[int], Tensor]


def generator(seed: int, step: int) -> torch.Generator:
    return torch.Generator().manual_seed(1_000_003 * seed + step)


POOL = 48
"""Batches after which the data repeat."""


def pooled(sample: Batch) -> Batch:
    """The same batches again and again, made once."""
    made: dict[int, Tensor] = {}

    def batch(step: int) -> Tensor:
        if step % POOL not in made:
            made[step % POOL] = sample(step % POOL)
        return made[step % POOL]

    return batch


def markov(seed: int, batch: int = 6) -> Batch:
    """Sequences of a random Markov chain, peaked like text."""
    chain = torch.softmax(3 * torch.randn(VOCABULARY, VOCABULARY, generator=generator(seed, 0)), 1)

    def sample(step: int) -> Tensor:
        g = generator(seed, step)
        tokens = [torch.randint(0, VOCABULARY, (batch,), generator=g)]
        for _ in range(LENGTH - 1):
            tokens.append(torch.multinomial(chain[tokens[-1]], 1, generator=g)[:, 0])
        return torch.stack(tokens, 1)

    return pooled(sample)


def copies(seed: int, batch: int = 6) -> Batch:
    """A random half, then the same again: a language that is learned in jumps."""

    def sample(step: int) -> Tensor:
        half = torch.randint(0, 8, (batch, LENGTH // 2), generator=generator(seed, step))
        return torch.cat([half, half], 1)

    return sample


def brackets(seed: int, batch: int = 6) -> Batch:
    """Balanced words of two kinds of brackets, padded."""

    def sample(step: int) -> Tensor:
        g = generator(seed, step)
        return torch.tensor([_word(g) for _ in range(batch)])

    return pooled(sample)


def _word(g: torch.Generator) -> list[int]:
    word: list[int] = []
    stack: list[int] = []
    while len(word) + len(stack) < LENGTH:
        if stack and torch.rand(1, generator=g).item() < 0.5:
            word.append(2 + stack.pop())
        else:
            stack.append(int(torch.randint(0, 2, (1,), generator=g)))
            word.append(stack[-1])
    return (word + [2 + kind for kind in reversed(stack)] + [4] * LENGTH)[:LENGTH]


def transformer(
    width: int = 24, layers: int = 3, norm: str = "layer", tied: bool = False
) -> SmallTransformer:
    shape = Shape(width, layers, VOCABULARY, norm, "learned", tied, "linear")
    return SmallTransformer(shape)


def next_token(model: nn.Module, batch: Batch) -> Callable[[int], Tensor]:
    """The loss of predicting each next token."""

    def loss(step: int) -> Tensor:
        tokens = batch(step)
        logits = model(tokens)[:, :-1].float()
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    return loss


class Encoder(nn.Module):
    """PyTorch's own encoder layers, with dropout."""

    def __init__(self, width: int = 24, layers: int = 3, dropout: float = 0.1, first: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout, batch_first=True, norm_first=first)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(x)


class Addition(nn.Module):
    """Two numbers of a small modulus, embedded, added up by a network with one hidden layer."""

    def __init__(self, modulus: int = 23, width: int = 48) -> None:
        super().__init__()
        self.modulus = modulus
        self.embed = nn.Embedding(modulus, width)
        self.hidden = nn.Linear(2 * width, 4 * width)
        self.unembed = nn.Linear(4 * width, modulus, bias=False)

    def forward(self, pairs: Tensor) -> Tensor:
        return self.unembed(torch.relu(self.hidden(self.embed(pairs).flatten(1))))

    def loss(self, seed: int) -> Callable[[int], Tensor]:
        """The loss on a fixed half of all pairs."""
        all_pairs = torch.cartesian_prod(torch.arange(self.modulus), torch.arange(self.modulus))
        kept = all_pairs[torch.randperm(len(all_pairs), generator=generator(seed, 0))[: len(all_pairs) // 2]]
        return lambda step: functional.cross_entropy(self(kept), kept.sum(1) % self.modulus)


def mlp(width: int = 64, depth: int = 4, inputs: int = 16) -> nn.Sequential:
    sizes = [inputs, *[width] * depth]
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def regression(model: nn.Module, seed: int, inputs: int = 16) -> Callable[[int], Tensor]:
    """A fixed random function of the inputs, with noise."""
    w = torch.randn(inputs, 3, generator=generator(seed, 0))

    def loss(step: int) -> Tensor:
        g = generator(seed, step)
        x = torch.randn(64, inputs, generator=g)
        y = torch.tanh(x @ w).sum(1, keepdim=True) + 0.1 * torch.randn(64, 1, generator=g)
        return functional.mse_loss(model(x), y)

    return loss


def convolutional() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 4, 10),
    )  # fmt: skip


def pictures(seed: int, step: int) -> tuple[Tensor, Tensor]:
    """Ten fixed patterns with noise, and which one it is."""
    patterns = torch.randn(10, 1, 8, 8, generator=generator(seed, 0))
    g = generator(seed, step + 1)
    kind = torch.randint(0, 10, (32,), generator=g)
    return patterns[kind] + 0.8 * torch.randn(32, 1, 8, 8, generator=g), kind


class Autoencoder(nn.Module):
    """A variational autoencoder of small pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
        self.decode = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64))

    def forward(self, x: Tensor) -> Tensor:
        mean, log_variance = self.encode(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        likelihood = functional.mse_loss(self.decode(z), x.flatten(1), reduction="sum") / len(x)
        return likelihood + 0.5 * (log_variance.exp() + mean**2 - 1 - log_variance).sum() / len(x)


class Adversaries(nn.Module):
    """A generator and a critic of points in a plane."""

    def __init__(self) -> None:
        super().__init__()
        self.make = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
        self.judge = nn.Sequential(
            nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)
        )

    def judge_loss(self, step: int) -> Tensor:
        angle = 6.28 * torch.rand(64)
        real = torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(64, 2)
        fake = self.make(torch.randn(64, 4)).detach()
        return functional.softplus(-self.judge(real)).mean() + functional.softplus(self.judge(fake)).mean()

    def make_loss(self, step: int) -> Tensor:
        return functional.softplus(-self.judge(self.make(torch.randn(64, 4)))).mean()


class LowRank(nn.Module):
    """A frozen linear map and a trained update of low rank, as in LoRA."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.lora_B(self.lora_A(x))


def with_low_rank(model: SmallTransformer) -> SmallTransformer:
    model.requires_grad_(False)
    for block in model.blocks:
        block.qkv, block.up = LowRank(block.qkv), LowRank(block.up)
    return model
