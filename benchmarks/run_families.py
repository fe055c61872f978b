"""Families of runs to hold the audit against, and faulty series made of them.

A family holds the inner products, tensor by tensor, of all checkpoints of several runs: "a" and "b" with one
start, "c" with another, "d" resumed from a checkpoint of "a", and moving averages of "a". Any series made of
these checkpoints is then a choice of rows, so that thousands of faults cost no further reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from benchmarks.trained_runs import KINDS
from normscope.weights.soundness.pairs import PairTable, TensorProducts, add_up

Pick = tuple[str, int]
"""A checkpoint: the name of its run and its index there."""

Change = Callable[[np.ndarray], np.ndarray]
"""A change of the inner products of one tensor, [n, n], for faults that are no choice of rows."""

STILL = 1e-12  # of ‖θ‖²: smaller squared moves are rounding of the inner products


@dataclass(frozen=True)
class Family:
    """All checkpoints of related runs, by their inner products, [tensors, checkpoints, checkpoints].

    `jumps` are the steps at which the learning rate jumps.
    """

    name: str
    steps: np.ndarray
    numel: np.ndarray
    inner: np.ndarray
    place: Mapping[Pick, int]
    jumps: Sequence[float] = ()

    @property
    def runs(self) -> list[str]:
        """The runs that have every checkpoint."""
        names = dict.fromkeys(run for run, _ in self.place)
        return [run for run in names if all((run, i) in self.place for i in range(len(self.steps)))]

    def picks(self, run: str = "a") -> list[Pick]:
        return [(run, i) for i in range(len(self.steps))]

    def series(
        self,
        picks: Sequence[Pick],
        in_tensors: Mapping[int, Mapping[int, Pick]] | None = None,
        change: Change | None = None,
    ) -> tuple[PairTable, np.ndarray]:
        """The table of a series of these checkpoints, and its ‖θ‖²; some tensors may come from others."""
        found, sumsq = [], np.zeros(len(picks))
        for tensor, (numel, inner) in enumerate(zip(self.numel, self.inner, strict=True)):
            others = (in_tensors or {}).get(tensor, {})
            rows = [self.place[others.get(position, pick)] for position, pick in enumerate(picks)]
            products = inner[np.ix_(rows, rows)]
            products = change(products.copy()) if change else products
            squares = np.diag(products)
            squared = np.maximum(squares[:, None] + squares - 2 * products, 0)
            squared[squared <= STILL * squares.max()] = 0
            sumsq += squares
            found.append(TensorProducts(int(numel), squared, products))
        return add_up(self.steps[: len(picks)], found), sumsq


def family_of_rows(
    name: str, steps: np.ndarray, runs: Mapping[str, np.ndarray], tensors: int, jumps: Sequence[float] = ()
) -> Family:
    """The family of runs given as vectors, [checkpoints, dimension]; a shorter run is the end of one."""
    rows = np.concatenate(list(runs.values()))
    place = {}
    for run, values in runs.items():
        for i in range(len(values)):
            place[run, len(steps) - len(values) + i] = len(place)
    parts = np.array_split(rows, tensors, axis=1)
    numel = np.array([part.shape[1] for part in parts])
    return Family(name, steps, numel, np.array([part @ part.T for part in parts]), place, jumps)


def trained_family(root: Path, name: str) -> Family | None:
    """The family of runs that `trained_runs` left in a folder; None if one of them became NaN."""
    folders = {run: root / f"{name}-{run}" for run in "abcd"}
    folders |= {f"a {path.name}": path for path in sorted(folders["a"].glob("ema*"))}
    files = {run: checkpoint_files(folder) for run, folder in folders.items()}
    steps = np.array(sorted(files["a"]))
    picks = [
        (run, i, files[run][step]) for run in files for i, step in enumerate(steps) if step in files[run]
    ]
    states = [load_file(path) for _, _, path in picks]
    names = matrices(states[0])
    rows = {n: np.stack([state[n].ravel() for state in states]).astype(np.float64) for n in names}
    if not all(np.isfinite(values).all() for values in rows.values()):
        return None
    numel = np.array([rows[n].shape[1] for n in names])
    place = {(run, i): k for k, (run, i, _) in enumerate(picks)}
    inner = np.array([rows[n] @ rows[n].T for n in names])
    kind = KINDS[name.rsplit("-", 2)[0]]
    return Family(name, steps, numel, inner, place, [kind.steps * x for x in kind.jumps])


def checkpoint_files(folder: Path) -> dict[int, Path]:
    return {int(path.stem.split("_")[1]): path for path in folder.glob("step_*.safetensors")}


def matrices(state: Mapping[str, np.ndarray]) -> list[str]:
    """What a scan counts: no masks, no constant tables, a tied head once."""
    tied = np.array_equal(state["lm_head.weight"], state["tok_emb.weight"])
    left_out = {
        "pe",
        *(name for name in state if name.endswith("mask")),
        *(["lm_head.weight"] if tied else []),
    }
    return [name for name, value in state.items() if value.ndim >= 2 and name not in left_out]


def family_names(root: Path) -> list[str]:
    found = sorted(path.name[:-2] for path in root.glob("*-a") if path.is_dir())
    return [name for name in found if all((root / f"{name}-{run}").is_dir() for run in "abcd")]
