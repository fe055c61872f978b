"""What `normscope spectrum` measures, and of which matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from normscope.errors import UsageError
from normscope.option_checks import check_integer, check_kind
from normscope.weights.heads.attention_facts import HeadOptions
from normscope.weights.scan.scan import ScanConfig
from normscope.weights.spectrum.head_tasks import HEAD_KINDS
from normscope.weights.spectrum.spectrum_tasks import KINDS as MATRIX_KINDS
from normscope.weights.spectrum.spectrum_tasks import WEIGHTS

KINDS = (*MATRIX_KINDS, *HEAD_KINDS)


@dataclass(frozen=True)
class SpectrumConfig:
    """What is measured of which matrices.

    `of` are kinds: weights, update (since the checkpoint before), growth (since the first), and of each
    attention head qk and ov. Embeddings and output heads are left out unless `scope` is "all". `exact`
    computes all singular values of large matrices too. `top` is how many of the largest are kept. `scan`
    says how the series is read. `query_heads`, `kv_heads` and `qkv_order` ("blocks" or "groups") say what no
    config.json beside the checkpoints says about attention heads.

    >>> ns.SpectrumConfig(of=("weights", "growth")).top
    32
    """

    of: Sequence[str] = (WEIGHTS,)
    scope: str = "body"
    exact: bool = False
    top: int = 32
    seed: int = 0
    scan: ScanConfig | None = None
    query_heads: int | None = None
    kv_heads: int | None = None
    qkv_order: str | None = None

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.of if kind not in KINDS]
        if isinstance(self.of, str) or unknown or not self.of:
            raise UsageError(f"of must be a list of {', '.join(KINDS)}; got {self.of!r}")
        object.__setattr__(self, "of", tuple(kind for kind in KINDS if kind in self.of))
        object.__setattr__(self, "top", check_integer("top", self.top, 1))
        object.__setattr__(self, "seed", check_integer("seed", self.seed))
        check_kind("exact", self.exact, bool, "True or False")
        if head_options(self) != HeadOptions() and not set(self.of) & set(HEAD_KINDS):
            raise UsageError("query_heads, kv_heads and qkv_order are for of=qk or ov; leave them out")

    @property
    def settings(self) -> dict[str, Any]:
        """What a row depends on; with others it is measured again."""
        return {"exact": self.exact, "top": self.top, "seed": self.seed}


def head_options(config: SpectrumConfig) -> HeadOptions:
    """What a caller says about attention heads."""
    return HeadOptions(config.query_heads, config.kv_heads, config.qkv_order)
