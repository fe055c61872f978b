"""Trainings whose norms follow no textbook curve: modular addition by a transformer without norms.

    python -m benchmarks.grokking_runs FOLDER [--steps N]

Full batches and strong weight decay: the network memorises, then finds the rule, and its norms grow, rest,
collapse and recover on the way. Each run is one CSV file with the norms of three groups of parameters, and
the learning rate and weight decay of each. A finished run is not trained again.
"""

from __future__ import annotations

import argparse
import csv
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

MODULUS = 29
WIDTH = 48
STEPS = 40_000
EVERY = 80
GROUPS = ("hidden", "auxiliary", "unembedding")


@dataclass(frozen=True)
class Setting:
    """How one run is trained; `optimizer` is that of the hidden matrices."""

    optimizer: str
    lr: float
    decay: float
    seed: int = 0


SETTINGS = {
    "adamw-1e-3-1": Setting("adamw", 1e-3, 1.0),
    "adamw-3e-3-0.3": Setting("adamw", 3e-3, 0.3, 1),
    "adamw-1e-3-3": Setting("adamw", 1e-3, 3.0, 2),
    "adamw-3e-3-1": Setting("adamw", 3e-3, 1.0, 3),
    "adamw-1e-3-0.1": Setting("adamw", 1e-3, 0.1, 4),
    "muon-1e-2-0.3": Setting("muon", 1e-2, 0.3, 5),
    "muon-3e-3-0.1": Setting("muon", 3e-3, 0.1, 6),
    "muon-1e-2-1": Setting("muon", 1e-2, 1.0, 7),
}


class Adder(nn.Module):
    """One layer of attention and one of ReLUs over the tokens a, b and '='."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(MODULUS + 1, WIDTH), nn.Parameter(torch.randn(3, WIDTH))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.unembed = nn.Linear(WIDTH, MODULUS, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.place
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        last = x[:, -1]
        return self.unembed(last + self.down(functional.relu(self.up(last))))

    def groups(self) -> dict[str, list[nn.Parameter]]:
        hidden = [m.weight for m in (self.qkv, self.out, self.up, self.down)]
        auxiliary = [self.embed.weight, self.place, self.up.bias, self.down.bias]
        return dict(zip(GROUPS, (hidden, auxiliary, [self.unembed.weight]), strict=True))


def problem(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two fifths of all sums modulo MODULUS."""
    pairs = torch.cartesian_prod(torch.arange(MODULUS), torch.arange(MODULUS))
    kept = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(seed))[: 2 * len(pairs) // 5]
    tokens = torch.cat([pairs[kept], torch.full((len(kept), 1), MODULUS)], dim=1)
    return tokens, pairs[kept].sum(dim=1) % MODULUS


def make_optimizers(model: Adder, setting: Setting) -> tuple[list[torch.optim.Optimizer], list[float]]:
    """The optimizers, and then learning rate and weight decay of each group in turn."""
    hidden, auxiliary, unembedding = model.groups().values()
    if setting.optimizer == "adamw":
        rates = [(setting.lr, setting.decay)] * 3
    else:
        rates = [(setting.lr, setting.decay), (1e-3, 1.0), (2.5e-4, 1.0)]
    others = [{"params": auxiliary, "lr": rates[1][0]}, {"params": unembedding, "lr": rates[2][0]}]
    adam = torch.optim.AdamW(others, weight_decay=rates[1][1], betas=(0.9, 0.98))
    if setting.optimizer == "adamw":
        adam.add_param_group({"params": hidden, "lr": setting.lr})
        return [adam], [value for pair in rates for value in pair]
    muon = torch.optim.Muon(hidden, setting.lr, weight_decay=setting.decay, momentum=0.95)
    return [muon, adam], [value for pair in rates for value in pair]


def train(setting: Setting, steps: int, path: Path) -> None:
    torch.manual_seed(setting.seed)
    model, (tokens, sums) = Adder(), problem(setting.seed)
    optimizers, rates = make_optimizers(model, setting)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        columns = [f"{group}_{name}" for group in GROUPS for name in ("lr", "weight_decay")]
        table.writerow(["step", *(f"{group}_norm" for group in GROUPS), "train_loss", *columns])
        for step in range(steps + 1):
            loss = functional.cross_entropy(model(tokens), sums)
            if step % EVERY == 0:
                norms = [
                    float(torch.cat([p.detach().flatten() for p in group]).norm())
                    for group in model.groups().values()
                ]
                table.writerow([step, *norms, loss.item(), *rates])
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()


def train_all(folder: Path, steps: int = STEPS) -> list[Path]:
    """The CSV files of all settings."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, setting in SETTINGS.items():
        paths.append(path := folder / f"grokking-{name}.csv")
        if not path.exists():
            begin = time.perf_counter()
            train(setting, steps, path.with_suffix(".part"))
            path.with_suffix(".part").replace(path)
            print(f"{path.name:32} {time.perf_counter() - begin:5.1f} s", flush=True)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    chosen = parser.parse_args()
    train_all(chosen.folder, chosen.steps)


if __name__ == "__main__":
    main()
