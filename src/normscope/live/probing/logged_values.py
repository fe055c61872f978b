"""What loggers get of the network: logits, entropy, saturation, residual stream, output."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from normscope.rows import ActivationRow, AttentionRow, Row, SaturationRow, SpectrumRow


def network_values(rows: Sequence[Row]) -> dict[str, float]:
    """Numbers of one step by logger key; those that are not measured, or not finite, are left out."""
    attention = [row for row in rows if isinstance(row, AttentionRow)]
    layers = [row for row in rows if isinstance(row, SaturationRow) and row.layer > 0]
    states = [row for row in rows if isinstance(row, ActivationRow)]
    residual = [row for row in states if row.kind == "residual"]
    values = {
        "normscope/attention/largest-logit": max((row.logit for row in attention), default=math.nan),
        "normscope/attention/entropy": _mean(row.entropy for row in attention),
        "normscope/saturation/mean": _mean(row.cosine for row in layers),
        "normscope/residual/last": max(residual, key=lambda row: row.layer).norm if residual else math.nan,
        "normscope/output/norm": _mean(row.norm for row in states if row.kind == "output"),
    }
    return {key: value for key, value in values.items() if math.isfinite(value)}


def spectral_values(rows: Sequence[SpectrumRow]) -> dict[str, float]:
    """The largest spectral norm of any matrix; NaN where one has none, because it is not finite."""
    found = [math.nan if row.spectral_norm is None else row.spectral_norm for row in rows]
    missing = any(map(math.isnan, found))
    return {"normscope/spectral-norm/largest": math.nan if missing else max(found)} if found else {}


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found) if found else math.nan
