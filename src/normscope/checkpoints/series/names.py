"""What the name of a checkpoint says: step, epoch, training stage, tokens seen, and which checkpoint it is.

Every number in a name is given a meaning, and only a number that counts training becomes a step: losses,
dates, versions, sizes, ranks and settings do not. Where the meaning stays open, the label says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

from normscope.checkpoints.formats.registry import file_suffixes
from normscope.checkpoints.series.name_reader import NameReader

_MORE_SUFFIXES = (
    ".index", ".tar", ".zarr", ".weights", ".zip", ".th", ".pyth", ".distcp",
)  # fmt: skip
"""Endings that are not part of a label, besides those of the formats; `model.ckpt-5100` keeps its own."""

_LONGEST = 500  # characters of a name that is read


@dataclass(frozen=True)
class Label:
    """What a name says; None or empty if it does not say.

    `unit` is what the number counts: "step", "epoch", "episode" …, or "number" if no word says it. `kind` is
    "numbered", "final", "best", "init", "ema", "average", "backup", "state" (an optimizer and the like),
    "part" (of a checkpoint that ranks share), "several" (numbers that could be a step or not) or "plain".
    `rank` names the part and `ranks` is how many there are. `skeleton` is the name without the numbers that
    differ from one checkpoint of a run to the next (`#`), its stage (`~`) and its rank (`@`). `day` are the
    digits of a date.
    """

    step: int | None
    stage: str = ""
    tokens: int | None = None
    epoch: int | None = None
    kind: str = "plain"
    unit: str = field(default="", compare=False)
    rank: str = field(default="", compare=False)
    ranks: int | None = field(default=None, compare=False)
    skeleton: str = field(default="", compare=False)
    day: str = field(default="", compare=False)

    @property
    def number(self) -> int | None:
        """The step, or the epoch if the name has no step."""
        return self.epoch if self.step is None else self.step


def parse_label(name: str) -> Label:
    """Read the name of a file or folder, or a path: what the last part does not say, its parents may.

    `stage1-step721901-tokens6056B` is step 721,901 of stage1 after 6.056·10¹² tokens;
    `model_00_4.12` is epoch 0, and 4.12 is a loss.
    """
    *parents, last = strip_suffix(name).lower().split("/")
    label = _read(last)
    for parent in reversed(parents):
        label = _completed(label, _read(parent))
    return label


def names_step(name: str) -> bool:
    """Whether a name clearly names a step or an epoch: `step_7` and `7` do, `my-model-7` does not."""
    label = parse_label(name)
    return label.number is not None and (label.unit != "number" or label.skeleton == "#")


def strip_suffix(name: str) -> str:
    """The name without the endings that only name the format."""
    suffixes = (*file_suffixes(), *_MORE_SUFFIXES)
    stripped = name.rstrip("/")
    while True:
        shorter = next((stripped[: -len(s)] for s in suffixes if stripped.lower().endswith(s)), "")
        if not shorter:
            return stripped
        stripped = shorter


def _completed(label: Label, parent: Label) -> Label:
    """The label with what only the folder around it says."""
    label = replace(
        label,
        stage=label.stage or parent.stage,
        tokens=parent.tokens if label.tokens is None else label.tokens,
        skeleton=f"{parent.skeleton}/{label.skeleton}",
    )
    if label.kind == "numbered" and parent.kind in ("ema", "average"):
        return replace(label, kind=parent.kind)
    if label.number is None and parent.number is not None and label.kind in ("plain", "part", "several"):
        return replace(label, step=parent.step, epoch=parent.epoch, unit=parent.unit, kind=parent.kind)
    return replace(label, epoch=parent.epoch) if label.epoch is None and label.unit == "step" else label


@lru_cache(maxsize=10_000)
def _read(name: str) -> Label:
    if len(name) > _LONGEST:  # file systems allow 255; the patterns take time that grows with its square
        return Label(None, skeleton=name)
    found = NameReader(name)
    found.read()
    return Label(
        found.step, found.stage, found.tokens, found.epoch, found.kind, found.unit,
        found.rank, found.ranks, found.skeleton, found.day,
    )  # fmt: skip
