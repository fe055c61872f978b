"""What a scan writes beside its sums: where they come from, what is measured, and what is not."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Collection, Iterable, Sequence

from normscope._version import __version__
from normscope.anatomy import unknown_tensors
from normscope.run import Run
from normscope.weights.scan.scan_stage import ScanStage
from normscope.weights.stale_rows import delete_unused_tensors
from normscope.weights.sums.statistics import backend
from normscope.words import joined


def write_provenance(run: Run, source: str, command: str | None) -> None:
    """Write what is scanned, by which command and versions. Call inside `transaction()`."""
    import numpy

    run.set_meta("complete", False)
    run.set_meta("source", source)
    run.set_meta("command", command or f"ns.scan({source!r})")
    run.set_meta("time", time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    run.set_meta("kernel", backend())
    versions = {"normscope": __version__, "python": platform.python_version(), "numpy": numpy.__version__}
    if "torch" in sys.modules:
        versions["torch"] = sys.modules["torch"].__version__
    run.set_meta("versions", versions)


def write_kernels(run: Run, kernels: Collection[str]) -> None:
    """Write what computed the sums, if not all was computed like here. Call inside `transaction()`."""
    if set(kernels) - {backend()}:
        run.set_meta("kernel", " and ".join(sorted(kernels)))
        note = f"sums were computed by machines with different processors ({joined(sorted(kernels))}): their "
        run.set_meta("notes", [*run.meta.get("notes", []), f"{note}last digits may differ"])


def write_inventory(run: Run, stages: Sequence[ScanStage], notes: Iterable[str]) -> None:
    """Write what is measured and what is not, with notes about the series. Call inside `transaction()`.

    Tensors of an earlier scan that have no rows any more are deleted.
    """
    inventories = [stage.inventory for stage in stages]
    names = {tensor.name for inventory in inventories for tensor in inventory.tensors}
    delete_unused_tensors(run, names)
    skipped = {n: why for inventory in inventories for n, why in inventory.skipped.items() if n not in names}
    run.replace_all("skipped", list(skipped.items()))
    run.set_meta("unknown_names", sorted(tensor.name for tensor in unknown_tensors(run.tensors())))
    run.set_meta("differing", sorted({name for inventory in inventories for name in inventory.differing}))
    stored = {note for stage in stages for checkpoint in stage.checkpoints for note in checkpoint.notes}
    spelling = [note for inventory in inventories for note in inventory.notes]
    run.set_meta("notes", [*notes, *spelling, *sorted(stored)])
