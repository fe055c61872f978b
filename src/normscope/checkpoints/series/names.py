"""What the name of a checkpoint says: step, training stage and tokens seen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from normscope.checkpoints.formats.registry import file_suffixes

_MORE_SUFFIXES = (".index", ".tar", ".zarr")
"""Endings that are not part of a label, besides those of the formats; `model.ckpt-5100` keeps its own."""

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_NUMBER = r"([0-9]{1,18})(?![0-9])"
_START = r"(?:^|[^a-z])"

# Tried in this order: words that count optimizer steps come before words that only number files.
_STEP_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_START}(?:global_?|train_?)?steps?[-_=.]?{_NUMBER}([km]?)(?![a-z])",
        rf"{_START}(?:iters?|iterations?|updates?)[-_=.]?{_NUMBER}([km]?)(?![a-z])",
        rf"{_START}(?:ba|batch(?:es)?)[-_=.]?{_NUMBER}(?![a-z])",
        rf"{_START}checkpoint_[0-9]+_{_NUMBER}$",  # fairseq: epoch, then updates
        rf"{_START}(?:checkpoint|ckpt)[-_=.]?{_NUMBER}(?![a-z])",
        rf"^{_NUMBER}$",
        rf"{_START}(?:epochs?|ep)[-_=.]?{_NUMBER}(?![a-z])",
        rf"[-_=.]{_NUMBER}$",
    )
)
_STAGE = re.compile(rf"{_START}(stage[-_]?[0-9]+(?:[-_]ingredient[-_]?[0-9]+)?)(?![0-9])")
_TOKENS = re.compile(
    rf"{_START}(?:tokens?[-_=]?([0-9]{{1,15}}(?:\.[0-9]{{1,9}})?)([kmbt]?)"
    r"|([0-9]{1,15})([kmbt])tokens?)(?![a-z0-9])"
)


@dataclass(frozen=True)
class Label:
    """Step, stage and tokens seen, according to a name; None if the name does not say."""

    step: int | None
    stage: str = ""
    tokens: int | None = None


def parse_label(name: str) -> Label:
    """Read step, stage and tokens from the name of a file or folder.

    `stage1-step721901-tokens6056B` is step 721,901 of stage1 after 6.056·10¹² tokens.
    """
    text = strip_suffix(name).lower()
    stage = _STAGE.search(text)
    rest = text if stage is None else text[: stage.start(1)] + "#" + text[stage.end(1) :]
    tokens, rest = _take_tokens(rest)
    return Label(_step(rest), stage.group(1) if stage else "", tokens)


def names_step(name: str) -> bool:
    """Whether a name clearly names a step: `step_7` and `7` do, `my-model-7` does not."""
    text = strip_suffix(name).lower()
    return any(pattern.search(text) for pattern in _STEP_PATTERNS[:-1])


def strip_suffix(name: str) -> str:
    """The name without the endings that only name the format."""
    suffixes = (*file_suffixes(), *_MORE_SUFFIXES)
    stripped = name.rstrip("/")
    while True:
        shorter = next((stripped[: -len(s)] for s in suffixes if stripped.lower().endswith(s)), "")
        if not shorter:
            return stripped
        stripped = shorter


def _step(text: str) -> int | None:
    for pattern in _STEP_PATTERNS:
        if found := pattern.search(text):
            unit = found.group(2) if pattern.groups > 1 else ""
            return int(found.group(1)) * _UNITS[unit or ""]
    return None


def _take_tokens(text: str) -> tuple[int | None, str]:
    found = _TOKENS.search(text)
    if found is None:
        return None, text
    amount, unit = (found.group(1), found.group(2)) if found.group(1) else (found.group(3), found.group(4))
    rest = text[: found.start()] + "#" + text[found.end() :]
    return int(Decimal(amount) * _UNITS[unit or ""]), rest
