"""Keep the comparison of all checkpoints in the run file, so that an audit of it sees what the scan saw."""

from __future__ import annotations

import hashlib
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping

import numpy as np

from normscope.errors import CorruptRunFile
from normscope.run import Run
from normscope.run_files.run_checks import damaged
from normscope.weights.soundness.findings import Array
from normscope.weights.soundness.pairs import PairTable

KIND = "pairs"
"""The kind of artifact; its key is the stage."""

TABLES = ("squared", "cosine", "shared")


def keep_pairs(
    run: Run, stage: str, table: PairTable, digests: Mapping[int, str | None], tensors: Iterable[str]
) -> None:
    """Store a table; `digests` say of which files, and `tensors` of what. Call inside `transaction()`."""
    values = {name: _packed(getattr(table, name)) for name in TABLES}
    identity = {"digests": _identity(table, digests), "tensors": _hash(tensors)}
    run.set_artifact(KIND, stage, {**identity, **values})


def forget_pairs(run: Run, stage: str) -> None:
    """Delete the table: a file may have changed under an equal digest. Call inside `transaction()`."""
    run.delete_rows("artifact", "kind = ? AND key = ?", (KIND, stage))


def kept_pairs(
    run: Run, stage: str, digests: Mapping[int, str | None], tensors: Iterable[str]
) -> PairTable | None:
    """The stored table of exactly these files and tensors (--skip may change); None if there is none."""
    kept = run.artifacts(KIND).get(stage)
    steps = np.array(list(digests), dtype=np.int64)
    if kept is None or len(kept["digests"]) > len(steps) or kept.get("tensors") != _hash(tensors):
        return None
    steps = steps[: len(kept["digests"])]
    if kept["digests"] != [[int(step), digests[int(step)]] for step in steps]:
        return None
    try:
        squared, cosine, shared = (_unpacked(kept[name], len(steps)) for name in TABLES)
    except (ValueError, zlib.error) as error:
        raise CorruptRunFile(damaged(run.path, f"its comparison of checkpoints ({error})")) from None
    return PairTable(steps, squared, cosine, shared)


def _identity(table: PairTable, digests: Mapping[int, str | None]) -> list[list[int | str | None]]:
    return [[int(step), digests[int(step)]] for step in table.steps]


def _hash(names: Iterable[str]) -> str:
    return hashlib.blake2b("\n".join(sorted(names)).encode(), digest_size=8).hexdigest()


def _packed(values: Array) -> str:
    upper = values[np.triu_indices(len(values))].astype("<f4")
    return b64encode(zlib.compress(upper.tobytes(), 1)).decode()


def _unpacked(text: str, n: int) -> Array:
    size = 4 * (n * (n + 1) // 2)
    unpacked = zlib.decompressobj().decompress(b64decode(text), size + 1)  # not more, whatever it claims
    if len(unpacked) != size:
        raise ValueError(f"expected {size} bytes, got {len(unpacked)} or more")
    upper = np.frombuffer(unpacked, dtype="<f4").astype(np.float64)
    values = np.zeros((n, n))
    values[np.triu_indices(n)] = upper
    return np.asarray(values + np.triu(values, 1).T)
