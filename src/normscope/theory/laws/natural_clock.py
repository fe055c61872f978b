"""Laws in the clock of the learning rate, for runs whose rates are recorded and change.

Updates of size η add up to a·∫η² in ρ² if they are misaligned, and to a·∫η if they have a constant part along
the parameters (Merrill et al. 2021, section 3, with a learning rate that changes). With decoupled decay λ,
what was there before shrinks by e^(−2∫ηλ) in ρ². A law in plain steps is none of these unless η is constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from normscope.run import Run
from normscope.run_files.recorded_columns import recorded
from normscope.theory.laws.laws import Array, Law
from normscope.theory.logs.rate_columns import logged_rates
from normscope.theory.measures.series_sources import Source, is_bundled, opened_run

_CHANGED = 0.01  # rates that differ by less than this share are equal
_SEGMENTS = 4096  # more recorded rates than this are thinned


@dataclass(frozen=True, eq=False)
class RateRecord:
    """Learning rate and decoupled weight decay at some steps; linear in between, constant outside."""

    steps: Array
    lr: Array
    weight_decay: Array

    def at(self, steps: Array) -> tuple[Array, Array]:
        """Learning rate and weight decay at `steps`."""
        return np.interp(steps, self.steps, self.lr), np.interp(steps, self.steps, self.weight_decay)

    def vary(self, first: float, last: float) -> bool:
        """Whether one of the two changes by more than a hundredth between two steps."""
        inside = self.steps[(self.steps > first) & (self.steps < last)]
        return any(_varies(rates) for rates in self.at(np.array([first, *inside, last])))

    def constant_since(self, last: float) -> float:
        """The step from which on, up to `last`, the rates stay as they are at `last`."""
        lr, decay = self.at(np.array([last]))
        same = _near(self.lr, lr[0]) & _near(self.weight_decay, decay[0])
        other = np.flatnonzero(~same & (self.steps <= last))
        if not other.size:
            return float(self.steps[0])
        return float(self.steps[min(int(other[-1]) + 1, len(self.steps) - 1)])

    def ends(self, first: float, last: float) -> str:
        """The learning rates between two steps, in words."""
        inside = self.steps[(self.steps > first) & (self.steps < last)]
        lr, decay = self.at(np.array([first, *inside, last]))
        words = [f"learning rate between {lr.min():.3g} and {lr.max():.3g}"] if _varies(lr) else []
        words += [f"weight decay between {decay.min():.3g} and {decay.max():.3g}"] if _varies(decay) else []
        return " and ".join(words)


def _near(rates: Array, rate: float) -> NDArray[np.bool_]:
    close: NDArray[np.bool_] = np.abs(rates - rate) <= _CHANGED * max(abs(rate), 1e-300)
    return close


def _varies(rates: Array) -> bool:
    return bool(np.ptp(rates) > _CHANGED * np.abs(rates).max())


def recorded_rates(run: Run, stage: str | None = None) -> RateRecord | None:
    """The rates that a run recorded; decay 0 if it recorded none, None without a learning rate."""
    lr, decay = _recorded(run, "lr", stage), _recorded(run, "weight_decay", stage)
    if not len(lr):
        return None
    decays = np.interp(lr[:, 0], decay[:, 0], decay[:, 1]) if len(decay) else np.zeros(len(lr))
    return RateRecord(lr[:, 0], lr[:, 1], decays)


def source_rates(source: Source, stage: str | None, column: str | None = None) -> RateRecord | None:
    """The rates that a run, or a log, recorded beside the norm; None if there are none."""
    with opened_run(source) as run:
        if run is not None:
            return recorded_rates(run, stage)
    return _of_log(source, column) if isinstance(source, (str, Path)) and not is_bundled(source) else None


def _of_log(path: str | Path, column: str | None) -> RateRecord | None:
    """The rates in the columns of a log; None if it has none, or several that differ."""
    found, _ = logged_rates(path, column)
    if found is None:
        return None
    decay = np.zeros(len(found.steps)) if found.weight_decay is None else found.weight_decay
    return RateRecord(found.steps, found.lr, decay)


def _recorded(run: Run, name: str, stage: str | None) -> Array:
    """Pairs (step, rate), from the scalars, or from the monitor's rows if there are none."""
    where, arguments = ("AND stage = ?", (stage,)) if stage is not None else ("", ())
    asked = f"SELECT step, avg(value) FROM scalar WHERE name = ? {where} GROUP BY step ORDER BY step"
    rows = run.query(asked, (name, *arguments))
    if not rows and any(getattr(recorded(run, each), name) for each in _stages(run, stage)):
        asked = f"SELECT step, avg({name}) FROM weight WHERE {name} IS NOT NULL {where} GROUP BY step"
        rows = run.query(f"{asked} ORDER BY step", arguments)
    pairs = np.array(rows, dtype=np.float64).reshape(-1, 2)
    return pairs[np.isfinite(pairs).all(axis=1)]


def _stages(run: Run, stage: str | None) -> list[str]:
    return run.stages() if stage is None else [stage]


def clock_laws(rates: RateRecord, steps: Array) -> dict[str, Law]:
    """The laws in the clocks ∫η² and ∫η, over the steps of a series; decay included where there is any."""
    inner = rates.steps[(rates.steps > steps[0]) & (rates.steps < steps[-1])]
    grid = np.unique(np.concatenate([steps, inner[:: len(inner) // _SEGMENTS + 1]]))
    lr, decay = rates.at(grid)
    if not (lr > 0).any():
        return {}
    shrunk = "e^(−2∫ηλ)·" if decay.any() else ""
    squared = _clock(grid, lr**2, 2 * lr * decay)
    single = _clock(grid, lr, 2 * lr * decay)
    plain = _clock(grid, lr, lr * decay)
    half = shrunk.replace("2", "")
    laws = (
        _law("misaligned-rates", "√(a·∫η² + b)", "misaligned updates of size η: ρ² grows with ∫η²", squared),
        _law("radial-rates", "√(a·∫η + b)", "updates with a constant part along θ: ρ² grows with ∫η", single),
        _law("steady-rates", "a·∫η + b", "the norm grows in step with the learning rate", plain, False),
    )
    if not shrunk:
        return {law.name: law for law in laws}
    shown = (f"√({shrunk}(a·∫e^(2∫ηλ)η² + b))", f"√({shrunk}(a·∫e^(2∫ηλ)η + b))", f"{half}(a·∫e^(∫ηλ)η + b)")
    return {law.name: _renamed(law, text) for law, text in zip(laws, shown, strict=True)}


def _renamed(law: Law, formula: str) -> Law:
    meaning = f"{law.meaning}, against weight decay"
    return Law(law.name, formula, law.parameters, meaning, law.basis, squared=law.squared)


def _law(name: str, formula: str, meaning: str, basis: Callable[[Array], Array], squared: bool = True) -> Law:
    return Law(name, formula, ("a", "b"), meaning, lambda t, _: basis(t), squared=squared)


def _clock(grid: Array, drive: Array, loss: Array) -> Callable[[Array], Array]:
    """t ↦ (G, e^(−L)): G' = drive − loss·G from 0, L' = loss, on a grid of steps; linear in between."""
    width = np.diff(grid)
    lost = (loss[1:] + loss[:-1]) / 2 * width
    gained = (drive[1:] + drive[:-1]) / 2 * width * np.exp(-lost / 2)
    total = np.zeros(len(grid))
    kept = np.exp(-lost)
    for i in range(len(width)):
        total[i + 1] = total[i] * kept[i] + gained[i]
    rest = np.exp(-np.concatenate([[0.0], np.cumsum(lost)]))

    def basis(t: Array) -> Array:
        return np.stack([np.interp(t, grid, total), np.interp(t, grid, rest)])

    return basis


#: What `GrowthFit.clock` says of these laws.
CLOCKS = {"misaligned-rates": "∫η² dt", "radial-rates": "∫η dt", "steady-rates": "∫η dt"}
