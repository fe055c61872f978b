"""What a replication found: claims with their numbers and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from normscope.replication.judging.condition import COLUMNS
from normscope.replication.judging.seed_interval import Estimate
from normscope.table import Table, Tabular


@dataclass(frozen=True)
class ClaimResult:
    """One claim with its verdict.

    `labels` says what each number is, by name, and `headline` names the main one; `paper`, `released` and
    `corrected` map these names to estimates. `because` says why the verdict was given, `otherwise` what
    would have changed it; `conditions` how the columns differ. `figure` is what the page draws.

    >>> import normscope as ns, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     claim = ns.replicate("sqrt-growth", output=folder).claims[0]
    >>> claim.headline, round(claim.corrected["exponent"].value, 2)
    ('exponent', 0.56)
    """

    id: str
    kind: str
    title: str
    statement: str
    place: str
    audit: str
    verdict: str
    because: str
    otherwise: tuple[str, ...]
    headline: str
    labels: Mapping[str, str] = field(hash=False)
    paper: Mapping[str, Estimate] = field(hash=False)
    released: Mapping[str, Estimate] = field(hash=False)
    corrected: Mapping[str, Estimate] = field(hash=False)
    conditions: Mapping[str, str] = field(hash=False)
    seeds: int
    preset: str
    seconds: float
    command: str
    notes: tuple[str, ...] = ()
    figure: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)


@dataclass(frozen=True, repr=False)
class Replication(Tabular):
    """The result of `replicate`: every claim in the folder `out`, with its verdict.

    >>> ns.Replication("replication", ()).counts
    {}
    """

    out: Path
    claims: tuple[ClaimResult, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Number of claims of each verdict."""
        found: dict[str, int] = {}
        for claim in self.claims:
            found[claim.verdict] = found.get(claim.verdict, 0) + 1
        return found

    @property
    def table(self) -> Table:
        """One row per claim, with its headline number in each column."""
        names = ("claim", "verdict", "number", *COLUMNS, "seeds", "preset")
        return Table.from_rows(names, [_row(claim) for claim in self.claims])

    @property
    def messages(self) -> Sequence[str]:
        """Summary that a notebook shows above the table."""
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items())
        return (f"{len(self.claims)} claims: {counts}",)


def _row(claim: ClaimResult) -> list[str | int]:
    shown = [shown_estimate(getattr(claim, column).get(claim.headline)) for column in COLUMNS]
    return [claim.title, claim.verdict, claim.labels[claim.headline], *shown, claim.seeds, claim.preset]


def shown_estimate(estimate: Estimate | None, as_percent: bool = False) -> str:
    """A number with its interval, for a person: `0.42 (0.31 to 0.53)`, or `42 % (31 to 53)`.

    >>> shown_estimate(Estimate(0.42, 0.31, 0.53, 3))
    '0.42 (0.31 to 0.53)'
    """
    if estimate is None or estimate.value is None:
        return "–"
    shown, unit = (_percent, " %") if as_percent else (_short, "")
    value = shown(estimate.value) + unit
    if estimate.low is None or estimate.high is None or shown(estimate.low) == shown(estimate.high):
        return value
    return f"{value} ({shown(estimate.low)} to {shown(estimate.high)})"


def _percent(share: float) -> str:
    return f"{100 * share:.2g}" if abs(share) < 0.0995 else f"{100 * share:.0f}"


def _short(value: float) -> str:
    text = f"{value:.3g}" if abs(value) < 0.995 or abs(value) >= 100 else f"{value:.4g}"
    return text.replace("-", "−") if text.startswith("-") else text
