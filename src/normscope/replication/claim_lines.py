"""The claims of a paper as short lines, with their verdicts where a replication was run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from normscope.replication.claim_files import known_claims
from normscope.replication.results_file import read_results


@dataclass(frozen=True)
class ClaimSummary:
    """One claim: what it says, the verdict of the last replication, and the command that tests it."""

    id: str
    sentence: str
    verdict: str | None
    command: str
    detail: str | None


def claim_lines(paper_id: str, results: Path | None = None) -> tuple[ClaimSummary, ...]:
    """Return the claims of a paper; those that were not run have no verdict."""
    found = {result.id: result for result in (read_results(results) if results else [])}
    lines = []
    for claim in known_claims().values():
        if claim.paper.lower() == paper_id.lower():
            result = found.get(claim.id)
            verdict, detail = (result.verdict, result.because) if result else (None, None)
            command = f"normscope replicate {claim.id}"
            sentence = (
                claim.statement if claim.kind == "claim" else f"Left open: {claim.title}. {claim.statement}"
            )
            lines.append(ClaimSummary(claim.id, sentence, verdict, command, detail))
    return tuple(lines)
