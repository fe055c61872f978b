"""Real trainings to hold forecasts against: small transformers on prose, watched by the monitor.

    python -m benchmarks.growth_runs FOLDER [--part tune|look|last-look] [--steps N]

Every run is one file, FOLDER/PART-NAME.db, as `ns.Monitor` writes it: norms, updates, learning rates and
weight decays of every parameter group. Forecasts were tuned on the parts `tune` and `look` and
looked at once on `last-look`, which has other shapes, rates and seeds. A finished run is not trained again.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pydoc_data import topics

import torch
from torch import nn
from torch.nn import functional

import normscope as ns
from benchmarks.small_optimizers import Lion
from benchmarks.small_transformer import LENGTH, Shape, SmallTransformer
from benchmarks.trained_runs import constant, cosine, restarts, stable_then_decay

BATCH = 12
STEPS = 3000
RECORDS = 300


def linear(x: float) -> float:
    return min(1.0, x / 0.03 + 0.01) * max(1.0 - x, 0.0)


def inverse_root(x: float) -> float:
    """T5's: constant for the first hundredth, then 1/√t."""
    return math.sqrt(0.01 / max(x, 0.01))


def warmed(x: float) -> float:
    return min(1.0, x / 0.05 + 0.01)


@dataclass(frozen=True)
class Setting:
    """One training. `rate(x)` is the learning rate, as a share of `lr`, at the fraction x of training."""

    optimizer: str
    lr: float
    rate: Callable[[float], float] = constant
    decay: float = 0.0
    matrices_only: bool = True


WIDE = Shape(48, 2, 256, "layer", "table", False, "linear")
DEEP = Shape(32, 3, 256, "rms", "learned", False, "linear")
POST = Shape(40, 2, 256, "post", "table", True, "linear")

TUNE = {
    "adam": (Setting("adam", 2e-3), WIDE),
    "adamw-0.1": (Setting("adamw", 2e-3, warmed, 0.1), WIDE),
    "adamw-1": (Setting("adamw", 3e-3, warmed, 1.0), WIDE),
    "adam-l2": (Setting("adam", 1e-3, warmed, 1e-3), DEEP),
    "sgd": (Setting("sgd", 0.1, warmed), WIDE),
    "sgd-decay": (Setting("sgd", 0.2, warmed, 1e-3, matrices_only=False), DEEP),
    "muon": (Setting("muon", 0.01, warmed, 0.1), WIDE),
    "muon-cosine": (Setting("muon", 0.02, cosine, 0.3), DEEP),
    "adamw-cosine": (Setting("adamw", 3e-3, cosine, 0.1), DEEP),
    "adam-wsd": (Setting("adam", 2e-3, stable_then_decay), WIDE),
    "adamw-wsd": (Setting("adamw", 2e-3, stable_then_decay, 0.3), DEEP),
    "adamw-restarts": (Setting("adamw", 3e-3, restarts, 0.05), WIDE),
    "adam-inverse-root": (Setting("adam", 1e-2, inverse_root), WIDE),
    "adamw-linear": (Setting("adamw", 3e-3, linear, 0.1), POST),
    "lion": (Setting("lion", 3e-4, warmed, 0.5), DEEP),
    "adafactor": (Setting("adafactor", 2e-2, inverse_root), WIDE),
}
LOOK = {
    "adam": (Setting("adam", 8e-4), DEEP),
    "adam-post": (Setting("adam", 1e-3, warmed), POST),
    "adamw-0.05": (Setting("adamw", 1e-3, warmed, 0.05), POST),
    "adamw-0.5": (Setting("adamw", 4e-3, warmed, 0.5), DEEP),
    "adam-l2": (Setting("adam", 2e-3, warmed, 3e-4), WIDE),
    "sgd": (Setting("sgd", 0.05), DEEP),
    "sgd-decay": (Setting("sgd", 0.1, warmed, 3e-4), WIDE),
    "muon": (Setting("muon", 0.005, warmed, 0.3), DEEP),
    "muon-wsd": (Setting("muon", 0.01, stable_then_decay, 0.05), WIDE),
    "adamw-cosine": (Setting("adamw", 2e-3, cosine, 0.03), WIDE),
    "adam-cosine": (Setting("adam", 4e-3, cosine), POST),
    "adamw-wsd": (Setting("adamw", 1e-3, stable_then_decay, 0.1), POST),
    "adamw-restarts": (Setting("adamw", 2e-3, restarts, 0.2), DEEP),
    "adam-restarts": (Setting("adam", 1e-3, restarts), WIDE),
    "adamw-linear": (Setting("adamw", 1e-3, linear, 0.3), WIDE),
    "lion-cosine": (Setting("lion", 5e-4, cosine, 0.1), WIDE),
    "adafactor": (Setting("adafactor", 1e-2, constant), DEEP),
}
BROAD = Shape(64, 1, 256, "layer", "learned", False, "linear")
SMALL = Shape(24, 4, 256, "rms", "table", True, "linear")
LAST_LOOK = {
    "adam": (Setting("adam", 3e-3, warmed), BROAD),
    "adam-small": (Setting("adam", 5e-4), SMALL),
    "adamw-0.1": (Setting("adamw", 1e-3, warmed, 0.1), SMALL),
    "adamw-0.3": (Setting("adamw", 2e-3, constant, 0.3), BROAD),
    "adamw-2": (Setting("adamw", 4e-3, warmed, 2.0), SMALL),
    "sgd": (Setting("sgd", 0.2, warmed), BROAD),
    "sgd-decay": (Setting("sgd", 0.05, warmed, 1e-3), SMALL),
    "sgd-cosine": (Setting("sgd", 0.2, cosine), BROAD),
    "muon": (Setting("muon", 0.02, warmed, 0.1), BROAD),
    "muon-rest": (Setting("muon", 0.02, warmed, 1.0), SMALL),
    "muon-linear": (Setting("muon", 0.01, linear, 0.1), SMALL),
    "adamw-cosine": (Setting("adamw", 1e-3, cosine, 0.1), BROAD),
    "adam-cosine": (Setting("adam", 2e-3, cosine), SMALL),
    "adamw-wsd": (Setting("adamw", 3e-3, stable_then_decay, 0.05), BROAD),
    "adam-wsd": (Setting("adam", 1e-3, stable_then_decay), SMALL),
    "adamw-restarts": (Setting("adamw", 3e-3, restarts, 0.1), BROAD),
    "lion": (Setting("lion", 2e-4, warmed, 0.3), BROAD),
    "adafactor": (Setting("adafactor", 3e-2, inverse_root), SMALL),
}
PARTS = {"tune": TUNE, "look": LOOK, "last-look": LAST_LOOK}


def make_optimizers(model: nn.Module, setting: Setting) -> list[torch.optim.Optimizer]:
    """The optimizers of a setting, with weight decay on matrices only unless it says otherwise."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    undecayed = setting.decay if not setting.matrices_only else 0.0
    groups = [
        {"params": matrices, "weight_decay": setting.decay},
        {"params": vectors, "weight_decay": undecayed},
    ]
    if setting.optimizer == "muon":
        hidden = [p for n, p in model.named_parameters() if p.ndim == 2 and n.startswith("blocks")]
        others = [p for p in model.parameters() if not any(p is h for h in hidden)]
        return [
            torch.optim.Muon(hidden, setting.lr, weight_decay=setting.decay, momentum=0.95),
            torch.optim.AdamW(others, setting.lr / 5, weight_decay=setting.decay / 10),
        ]
    if setting.optimizer == "lion":
        return [Lion(groups, setting.lr, setting.decay)]
    if setting.optimizer == "sgd":
        return [torch.optim.SGD(groups, setting.lr, momentum=0.9)]
    if setting.optimizer == "adafactor":
        return [torch.optim.Adafactor(groups, setting.lr)]
    kind = torch.optim.AdamW if setting.optimizer == "adamw" else torch.optim.Adam
    return [kind(groups, setting.lr)]


def prose() -> torch.Tensor:
    """The bytes of the prose that comes with Python."""
    text = "\n".join(topics.topics[name] for name in sorted(topics.topics))
    return torch.tensor(list(text.encode("utf-8")))


def train(setting: Setting, shape: Shape, seed: int, steps: int, path: Path) -> None:
    torch.manual_seed(seed)
    model = SmallTransformer(shape)
    optimizers = make_optimizers(model, setting)
    peaks = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    text, random = prose(), torch.Generator().manual_seed(seed)
    with ns.Monitor(model, optimizers, path, ns.every(max(1, steps // RECORDS))) as monitor:
        for step in range(steps):
            groups = [group for optimizer in optimizers for group in optimizer.param_groups]
            for group, peak in zip(groups, peaks, strict=True):
                group["lr"] = peak * setting.rate(step / steps)
            starts = torch.randint(len(text) - LENGTH - 1, (BATCH,), generator=random)
            tokens = torch.stack([text[start : start + LENGTH + 1] for start in starts])
            loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            if setting.optimizer == "sgd":
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
            monitor.log(loss=loss)


def train_once(part: str, name: str, steps: int, folder: Path) -> Path:
    """Train one run unless it exists; return its run file."""
    path = folder / f"{part}-{name}.db"
    if path.exists():
        return path
    setting, shape = PARTS[part][name]
    seed = 1000 * list(PARTS).index(part) + list(PARTS[part]).index(name)
    partial = folder / f"{part}-{name}.part.db"
    partial.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    train(setting, shape, seed, steps, partial)
    partial.replace(path)
    print(f"{path.name:32} {time.perf_counter() - begin:5.1f} s", flush=True)
    return path


def train_all(folder: Path, parts: list[str], steps: int = STEPS) -> dict[str, list[Path]]:
    """The run files of each part."""
    torch.set_num_threads(1)
    return {part: [train_once(part, name, steps, folder) for name in PARTS[part]] for part in parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", choices=list(PARTS), action="append")
    parser.add_argument("--steps", type=int, default=STEPS)
    chosen = parser.parse_args()
    train_all(chosen.folder, chosen.part or list(PARTS), chosen.steps)


if __name__ == "__main__":
    main()
