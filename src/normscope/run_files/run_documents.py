"""The documents in a run file: what each is, by its table and key, so that readers need not doubt it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from normscope.errors import CorruptRunFile
from normscope.run_files.document_shapes import MAYBE, NUMBER, Each, Inside, Rectangle, decode
from normscope.run_files.run_checks import damaged

_SCALAR = (str, bool, int, float, None)
_POINTS = Each([[MAYBE]])
_MAYBE_LIST = ([MAYBE], *MAYBE)

META: dict[str, Any] = {
    **{key: [str] for key in ("notes", "unknown_names", "differing", "remarks", "sources")},
    **dict.fromkeys(("config", "base", "versions"), dict),
    "source": (str, None),
    "complete": bool,
    "monitor.breaks": Each(Each(str, steps=True)),
    "monitor.abandoned": Each([{"step": int, "time": NUMBER, "digests": Each((str, None), steps=True)}]),
}
"""Metadata by key; what is not listed is shown, and not computed with."""

CELL: dict[str, Any] = {
    "id": str,
    "changes": Each((*_SCALAR, list, dict)),
    "status": str,
    "run?": Inside,
    "error?": str,
    "saturation_error?": str,
    "curves?": _POINTS,
    "evaluation?": Each(MAYBE),
    **{f"{name}?": NUMBER for name in ("seed", "lr", "weight_decay", "loss", "steps", "mean_lr", "seconds")},
    **{f"{name}?": NUMBER for name in ("norm_start", "norm_end", "body_norm_start", "body_norm_end")},
    **{f"{name}?": NUMBER for name in ("update", "body_update", "radial", "body_radial", "parameters")},
}
"""The result of one cell of a sweep."""

_ALARM = {"step": int, "kind": str, "where": str, "message": str, "severity?": str, "evidence?": Each(MAYBE)}
_GROUP = {"weight_decay": NUMBER, "kind": str, "momentum": MAYBE, "coupled": bool, "tensors": [str]}
_NOTE = {"warnings?": [str], "look_ahead?": [dict], "problems?": list, "model?": str, "checkpoint?": str}
_ABLATED: dict[str, Any] = {"module": str, "layer": int, "head": int, "kind": str}
_ABLATED |= {f"{name}?": NUMBER for name in ("loss_change", "changed", "divergence", "turned", "moved")}

_TOKENS: dict[str, Any] = {"tokens": [str], "key_tokens?": [str]}

ARTIFACTS: dict[str, Any] = {
    "alarm": [_ALARM],
    "cell": CELL,
    "optimizer": [_GROUP],
    "attention": (_TOKENS | {"soft": Rectangle, "saturated": Rectangle}, _TOKENS | {"soft?": None}),
    "scaling-curve": {"c": [NUMBER], "cosine?": [MAYBE], "norm?": [MAYBE], "degree?": _MAYBE_LIST},
    "saturated-task": {"networks": [{"network": str, "accuracy?": NUMBER, "agreement?": NUMBER}]},
    "ablation": {"heads": [_ABLATED]},
    "pairs": {"digests": [[(int, str, None)]], "tensors?": str, "squared": str, "cosine": str, "shared": str},
    "saturation-error": str,
    "similarity-settings": {"warnings": [str], "rows": int},
    **dict.fromkeys(("live-probe", "saturation-settings"), _NOTE),
}
"""Artifacts by kind."""
KEYED_BY_STEP = {"live-probe", "saturation-settings", "similarity-settings", "saturation-error"}

COLUMNS: dict[str, Any] = {
    "shape": [int],
    "steps": [int],
    "numbers": Each((str, bool, int, float, None, list)),
    "detail": {
        **{f"{name}?": [MAYBE] for name in ("top", "top_errors", "quantiles")},
        **{f"{name}?": Each(MAYBE) for name in ("error", "old", "same")},
        "note?": str,
    },
    "attends": {"name?": str, "soft?": Each([MAYBE]), "saturated?": Each([MAYBE])},
}
"""Columns that contain documents."""


def read_meta(path: Path, key: str, text: str) -> Any:
    """One entry of the metadata."""
    return _decoded(path, f"the metadata {key!r}", text, META.get(key, object))


def read_artifact(path: Path, kind: str, key: str, text: str) -> Any:
    """One artifact."""
    value = _decoded(path, f"the artifact {kind} {key!r}", text, ARTIFACTS.get(kind, object))
    if kind in KEYED_BY_STEP and not key.rpartition("/")[2].removeprefix("-").isdecimal():
        raise CorruptRunFile(damaged(path, f"the artifact {kind} {key!r} is not of a step"))
    return value


def read_column(path: Path | None, column: str, text: str) -> Any:
    """One document in a column of a table."""
    return _decoded(path, f"the column {column}", text, COLUMNS[column])


def read_shape(path: Path, text: str) -> tuple[int, ...]:
    """The shape of a tensor; a run has few shapes and many tensors."""
    try:
        return _shape(text)
    except ValueError:
        return tuple(read_column(path, "shape", text))  # raises the error of a run file


@lru_cache(1000)
def _shape(text: str) -> tuple[int, ...]:
    return tuple(decode(text, COLUMNS["shape"]))


def _decoded(path: Path | None, what: str, text: str, shape: Any) -> Any:
    try:
        return decode(text, shape)
    except ValueError as error:
        raise CorruptRunFile(damaged(path or "a run file", f"{what}: {error}")) from None
