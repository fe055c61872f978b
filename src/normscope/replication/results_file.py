"""results.json: the claims of a replication, kept in one file and added to by later runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from normscope._version import __version__
from normscope.atomic_write import atomic_write
from normscope.errors import RunFileError
from normscope.replication.judging.condition import COLUMNS
from normscope.replication.judging.seed_interval import Estimate
from normscope.replication.replication_result import ClaimResult


def write_results(path: Path, results: Sequence[ClaimResult]) -> None:
    """Write the results; those of other claims that are already in the file stay."""
    kept = {result.id: result for result in (read_results(path) if path.exists() else [])}
    kept |= {result.id: result for result in results}
    document = {"normscope": __version__, "claims": [asdict(result) for result in _ordered(kept)]}
    with atomic_write(path) as part:
        part.write_text(json.dumps(document, ensure_ascii=False, allow_nan=False), encoding="utf-8")


def read_results(path: Path) -> list[ClaimResult]:
    """Return the claims of a results file, in the order of the paper."""
    try:
        document = json.loads(path.read_text("utf-8"))
        return [_result(entry) for entry in document["claims"]]
    except OSError as error:
        raise RunFileError(f"cannot read {path}: {error.strerror}; run normscope replicate first") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunFileError(
            f"{path} is not a results file of normscope replicate ({type(error).__name__}: {error}): "
            "move it away, and run the replication again"
        ) from None


def _result(entry: Mapping[str, Any]) -> ClaimResult:
    known = {f.name for f in fields(ClaimResult)}
    values: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in entry.items() if name in known
    }
    for column in COLUMNS:
        values[column] = {name: Estimate.from_document(found) for name, found in entry[column].items()}
    return ClaimResult(**values)


def _ordered(results: Mapping[str, ClaimResult]) -> list[ClaimResult]:
    from normscope.replication.claim_files import known_claims

    places = {name: place for place, name in enumerate(known_claims())}
    return sorted(results.values(), key=lambda result: places.get(result.id, len(places)))
