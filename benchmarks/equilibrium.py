"""Does the norm of each parameter group settle where its recursion predicts? Small transformers.

    python -m benchmarks.equilibrium [--cache FOLDER] [--steps 3000]

Each run trains on prose at a constant rate, watched by the monitor; matrices decay, vectors do not. From
its first half alone, the equilibrium norm of the decayed group and the norm at the last step are predicted,
and held against the second half. About a minute per run on one core.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from pydoc_data import topics

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import normscope as ns
from benchmarks.small_optimizers import Lion
from benchmarks.small_transformer import LENGTH, Shape, SmallTransformer
from normscope.theory.dynamics.group_dynamics import continue_group, group_equilibrium
from normscope.theory.dynamics.rate_groups import RateGroup, rate_groups
from normscope.theory.dynamics.rotation import rotation

SHAPE = Shape(48, 2, 256, "layer", "table", False, "linear")
BATCH = 12
RECORDS = 200


@dataclass(frozen=True)
class Setting:
    """One training at a constant rate."""

    optimizer: str
    lr: float
    decay: float

    @property
    def name(self) -> str:
        return f"{self.optimizer}-{self.lr:g}-{self.decay:g}"


SETTINGS = (
    Setting("adamw", 5e-3, 3.0),
    Setting("adamw", 5e-3, 1.0),
    Setting("adamw", 3e-3, 1.0),
    Setting("adamw", 3e-3, 0.3),
    Setting("muon", 0.02, 1.0),
    Setting("muon", 0.02, 0.3),
    Setting("muon", 0.01, 0.3),
    Setting("lion", 5e-4, 3.0),
    Setting("sgd", 0.2, 5e-3),
)


def optimizers(model: nn.Module, setting: Setting) -> list[torch.optim.Optimizer]:
    hidden = [p for n, p in model.named_parameters() if p.ndim == 2 and n.startswith("blocks")]
    others = [p for p in model.parameters() if not any(p is h for h in hidden)]
    if setting.optimizer == "muon":
        muon = torch.optim.Muon(hidden, setting.lr, weight_decay=setting.decay, momentum=0.95)
        return [muon, torch.optim.AdamW(others, 2e-3, weight_decay=0.0)]
    groups = [
        {"params": hidden, "weight_decay": setting.decay},
        {"params": others, "weight_decay": 0.0},
    ]
    if setting.optimizer == "sgd":
        return [torch.optim.SGD(groups, setting.lr, momentum=0.9)]
    if setting.optimizer == "lion":
        return [Lion(groups, setting.lr, setting.decay)]
    return [torch.optim.AdamW(groups, setting.lr)]


def train(setting: Setting, steps: int, path: Path) -> None:
    torch.manual_seed(0)
    model = SmallTransformer(SHAPE)
    chosen = optimizers(model, setting)
    text = torch.tensor(
        list("\n".join(topics.topics[name] for name in sorted(topics.topics)).encode("utf-8"))
    )
    random = torch.Generator().manual_seed(0)
    with ns.Monitor(model, chosen, path, ns.every(max(1, steps // RECORDS))):
        for _ in range(steps):
            starts = torch.randint(len(text) - LENGTH - 1, (BATCH,), generator=random)
            tokens = torch.stack([text[start : start + LENGTH + 1] for start in starts])
            loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            model.zero_grad()
            loss.backward()
            if setting.optimizer == "sgd":
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in chosen:
                optimizer.step()


def decayed_group(path: Path) -> RateGroup:
    with ns.Run(path) as run:
        return max(rate_groups(run, "body"), key=lambda group: float(group.rates.weight_decay.max()))


HEAD = (
    "optimizer|η|λ|half-life (steps)|rest, by the first half|last tenth|error|error, by the whole run"
    "|at rest|forecast error|turns"
)


def report(setting: Setting, group: RateGroup) -> None:
    """One row: rest and last norm as the first half predicts them, beside what was measured."""
    end, norms = group.steps[-1], np.sqrt(group.sumsq)
    early = group.until(end / 2)
    rest = group_equilibrium(early, setting.lr, setting.decay)
    ahead = float(np.sqrt(continue_group(early, np.array([end]))[-1]))
    last, middle = (
        float(norms[(group.steps > low * end) & (group.steps <= high * end)].mean())
        for low, high in ((0.9, 1.0), (0.5, 0.6))
    )
    turning = rotation(group)
    angle = turning.ratio if turning is not None and turning.ratio is not None else np.nan
    cells = [setting.optimizer, f"{setting.lr:g}", f"{setting.decay:g}"]
    if rest.norm is None:
        cells += ["–", "–", f"{last:.2f}", "–", "–", "–"]
    else:
        cells += [f"{rest.half_life:,}", f"{rest.norm:.2f} ({rest.low:.2f} … {rest.high:.2f})", f"{last:.2f}"]
        now = group_equilibrium(group, setting.lr, setting.decay).norm or np.nan
        cells += [f"{rest.norm / last - 1:+.1%}", f"{now / last - 1:+.1%}"]
        cells += ["yes" if abs(last / middle - 1) < 0.05 else "no"]
    print("| " + " | ".join([*cells, f"{ahead / norms[-1] - 1:+.1%}", f"{angle:.2f} ×"]) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--steps", type=int, default=3000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| " + HEAD.replace("|", " | ") + " |")
    print("|" + "---|" * (HEAD.count("|") + 1))
    with tempfile.TemporaryDirectory() as folder:
        for setting in SETTINGS:
            path = (options.cache or Path(folder)) / f"{setting.name}.db"
            if not path.exists():
                train(setting, options.steps, path)
            report(setting, decayed_group(path))


if __name__ == "__main__":
    main()
