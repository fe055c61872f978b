"""Small models that train in milliseconds, and what the monitor wrote about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from normscope.live.monitor import Monitor
from normscope.live.monitor_options import MonitorOptions
from normscope.run import Run
from normscope.schedule import every

COLUMNS = "sumsq, dot, sumsq_delta, nonfinite, grad_sumsq, grad_dot, lr, weight_decay"


class Tiny(nn.Module):
    """A tied embedding, a frozen layer, a parameter without gradient, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.inner = nn.Linear(6, 6)
        self.frozen = nn.Linear(6, 6)
        self.head = nn.Linear(6, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.frozen.requires_grad_(False)
        self.never = nn.Parameter(torch.ones(2))
        self.register_buffer("table", torch.ones(3))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.frozen(torch.tanh(self.inner(self.embedding(tokens))))
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1).float(), tokens.roll(1, 1).flatten())


def tiny(dtype: torch.dtype = torch.float32) -> Tiny:
    torch.manual_seed(3)
    return Tiny().to(dtype)


def batches(number: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(0, 7, (4, 5), generator=generator) for _ in range(number)]


def rows(path: Path) -> dict[tuple[int, str], dict[str, float]]:
    """The weight rows of a run file by (step, tensor name)."""
    with Run(path) as run:
        sql = f"SELECT step, name, prev_step, {COLUMNS} FROM weight JOIN tensor ON tensor.id = weight.tensor"
        names = ["prev_step", *COLUMNS.split(", ")]
        return {(row[0], row[1]): dict(zip(names, row[2:], strict=True)) for row in run.query(sql)}


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)


def monitored(path: Path, **options: Any) -> tuple[nn.Module, torch.optim.Optimizer, Monitor]:
    """A tiny model, its optimizer, and a monitor that records every step."""
    model = tiny()
    optimizer = sgd(model)
    return model, optimizer, Monitor(model, optimizer, path, every(1), MonitorOptions(**options))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, last: int, first: int = 0) -> None:
    """Make the steps after `first` up to `last`, each with its own batch."""
    for tokens in batches(last)[first:]:
        optimizer.zero_grad()
        model(tokens).backward()
        optimizer.step()


def blocks() -> nn.Module:
    """Four transformer layers between an embedding and a head."""
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in range(4)]
    return nn.ModuleDict(
        {"embedding": nn.Embedding(32, 16), "layers": nn.ModuleList(layers), "head": nn.Linear(16, 32)}
    )


def train_blocks(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        tokens = torch.randint(0, 32, (4, 8), generator=generator)
        x = net["embedding"](tokens)
        for block in net["layers"]:
            x = block(x)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net["head"](x).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
