"""Training runs without a network: parameter vectors that walk, drift, decay and oscillate.

θ ← (1 − ηλ)θ + η(drift + noise), with a slowly turning drift, plus directions that
oscillate with an amplitude that follows the learning rate (so that a decay of it makes
the norm fall, as in real runs). Norms, cosines and updates are those of true vectors,
hence consistent with each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from normscope.weights.soundness.path import ParameterPath
from normscope.weights.soundness.samples import squared_distances

DIMENSION = 3000
SAMPLED = 1000  # of them: far fewer than an audit samples, so noisier
PIECES = 8  # updates simulated between two checkpoints

SPACINGS = ("linear", "linear-from-start", "last-off-grid", "pythia", "geometric", "two-phases", "denser-end")
SCHEDULES = (
    "constant",
    "warmup",
    "inverse-sqrt",
    "cosine",
    "drops",
    "restarts",
    "decay-at-end",
    "cooldown-restart",
)


@dataclass(frozen=True)
class Recipe:
    """What a simulated run looks like; every field drawn by `draw_recipe`."""

    steps: np.ndarray
    schedule: str
    decay: float  # λ·total training
    drift: float
    noise: float
    swing: float
    turning: float
    rounding: float
    seed: int


def draw_recipe(rng: np.random.Generator) -> Recipe:
    return Recipe(
        steps=draw_steps(rng, str(rng.choice(SPACINGS))),
        schedule=str(rng.choice(SCHEDULES)),
        decay=float(rng.choice([0.0, 0.1, 1.0, 4.0, 12.0])),
        drift=float(rng.choice([0.0, 0.3, 1.0, 3.0])),
        noise=float(10 ** rng.uniform(-2, 0.7)),
        swing=float(rng.choice([0.0, 0.1, 0.3])),
        turning=float(rng.choice([0.0, 0.3, 2.0])),
        rounding=float(rng.choice([0.0, 0.0, 2e-3])),
        seed=int(rng.integers(1 << 40)),
    )


def draw_steps(rng: np.random.Generator, spacing: str) -> np.ndarray:
    """Steps at which training code typically saves."""
    count, every = int(rng.integers(8, 60)), int(rng.choice([1, 50, 500, 1000, 5100]))
    linear = np.arange(0, count + 1) * every
    if spacing == "linear":
        return linear[1:]
    if spacing == "linear-from-start":
        return linear
    if spacing == "last-off-grid":
        return np.append(linear, linear[-1] + max(1, int(every * rng.uniform(0.05, 0.95))))[
            : None if every > 1 else -1
        ]
    if spacing == "pythia":
        return np.concatenate([[0], 2 ** np.arange(10), np.arange(1, count + 1) * 1000])
    if spacing == "geometric":
        ratio = float(rng.choice([1.3, 1.5, 2.0]))
        return np.unique(
            np.round(rng.choice([1, 10, 100]) * ratio ** np.arange(min(max(count, 14), 25))).astype(int)
        )
    if spacing == "two-phases":
        return np.concatenate([np.arange(1, 11) * 100, np.arange(2, count + 2) * 1000])
    return np.concatenate([np.arange(1, 11) * 5000, 50_000 + np.arange(1, count + 1) * 1000])


def rate(schedule: str, x: float, rng_phase: float) -> float:
    """The learning rate at the fraction x of training, 1 at its peak."""
    if schedule == "warmup":
        return min(1.0, x / 0.1 + 1e-3)
    if schedule == "inverse-sqrt":
        return min(1.0, 0.1 / np.sqrt(x + 1e-4))
    if schedule == "cosine":
        return min(1.0, x / 0.02 + 1e-3) * (0.05 + 0.475 * (1 + np.cos(np.pi * x)))
    if schedule == "drops":
        return 0.1 ** (int(x > 0.3 + 0.3 * rng_phase) + int(x > 0.8))
    if schedule == "restarts":
        return 0.02 + 0.49 * (1 + np.cos(np.pi * ((x * (2 + int(3 * rng_phase)) + rng_phase) % 1)))
    if schedule == "decay-at-end":
        return min(1.0, (1.0001 - x) / 0.15)
    if schedule == "cooldown-restart":
        middle = 0.4 + 0.3 * rng_phase
        return max(0.01, min(1.0, (middle - x) / 0.2)) if x < middle else 0.5
    return 1.0


@dataclass
class State:
    """The state of a simulated run; `copy` starts a fork."""

    theta: np.ndarray
    drift: np.ndarray
    swings: np.ndarray

    def copy(self) -> State:
        return State(self.theta.copy(), self.drift.copy(), self.swings.copy())


def unit(rng: np.random.Generator) -> np.ndarray:
    vector = rng.standard_normal(DIMENSION)
    return vector / np.linalg.norm(vector)


def start(rng: np.random.Generator) -> State:
    return State(unit(rng), unit(rng), np.zeros(DIMENSION // 10))


def advance(state: State, recipe: Recipe, begin: float, end: float, rng: np.random.Generator) -> None:
    """Train from the fraction `begin` to `end` of the run."""
    phase = recipe.seed % 1000 / 1000
    for piece in range(PIECES):
        width = (end - begin) / PIECES
        eta = rate(recipe.schedule, begin + (piece + 0.5) * width, phase)
        state.theta *= np.exp(-recipe.decay * eta * width)
        state.theta += recipe.drift * eta * width * state.drift
        state.theta += recipe.noise * eta * np.sqrt(width) * unit(rng)
        pull = np.exp(-30 * eta * PIECES * width)
        state.swings *= pull
        fresh = rng.standard_normal(len(state.swings)) / np.sqrt(len(state.swings))
        state.swings += recipe.swing * np.sqrt(eta * (1 - pull**2)) * fresh
        if recipe.turning:
            state.drift += recipe.turning * np.sqrt(width) * unit(rng)
            state.drift /= np.linalg.norm(state.drift)


def snapshot(state: State, recipe: Recipe, rng: np.random.Generator) -> np.ndarray:
    """The checkpoint: walk plus oscillation, rounded as a short dtype would."""
    theta = state.theta.copy()
    theta[: len(state.swings)] += state.swings
    return theta * (1 + recipe.rounding * rng.uniform(-1, 1, DIMENSION)) if recipe.rounding else theta


def simulate(
    recipe: Recipe, seed: int | None = None, state: State | None = None, first: int = 0
) -> np.ndarray:
    """Checkpoints [steps, dimension] of one run, or of a fork that starts from `state` at index `first`."""
    rng = np.random.default_rng(recipe.seed if seed is None else seed)
    state = start(rng) if state is None else state.copy()
    times = recipe.steps / recipe.steps[-1]
    found = []
    at = times[first] if first else 0.0
    for time in times[first:]:
        if time > at:
            advance(state, recipe, at, time, rng)
        at = time
        found.append(snapshot(state, recipe, rng))
    return np.array(found)


def state_at(recipe: Recipe, index: int) -> State:
    """The state of the run at a checkpoint, to fork from."""
    rng = np.random.default_rng(recipe.seed)
    state, at = start(rng), 0.0
    for time in (recipe.steps / recipe.steps[-1])[: index + 1]:
        if time > at:
            advance(state, recipe, at, time, rng)
        at = time
        snapshot(state, recipe, rng)
    return state


def other_run(recipe: Recipe, rng: np.random.Generator, same_start: bool) -> np.ndarray:
    """A second run of the same recipe, from the same start or another; half of its drift differs."""
    state = None
    if same_start:
        state = start(np.random.default_rng(recipe.seed))
        state.drift = 0.5 * state.drift + unit(rng)
        state.drift /= np.linalg.norm(state.drift)
    return simulate(recipe, seed=int(rng.integers(1 << 40)), state=state)


def resumed(recipe: Recipe, rng: np.random.Generator, runs: np.ndarray, k: int) -> np.ndarray:
    """From checkpoint k on, stale ones of an attempt that forked some checkpoints earlier."""
    fork = max(1, k - int(rng.integers(2, 5)))
    fresh = simulate(recipe, int(rng.integers(1 << 40)), state_at(recipe, fork), fork)
    runs[k:] = fresh[k - fork :]
    return runs


def exchange(runs: np.ndarray, i: int, j: int) -> np.ndarray:
    runs[[i, j]] = runs[[j, i]]
    return runs


def put(runs: np.ndarray, where: int | slice, what: np.ndarray) -> np.ndarray:
    runs[where] = what[where]
    return runs


SPOILERS = {
    "mixed runs, other start": lambda r, g, x, k: put(x, slice(k, None), other_run(r, g, False)),
    "mixed runs, same start": lambda r, g, x, k: put(x, slice(k, None), other_run(r, g, True)),
    "stale end after a resume": resumed,
    "block of another run": lambda r, g, x, k: put(x, slice(k, k + 3), other_run(r, g, False)),
    "alternating, other start": lambda r, g, x, k: put(x, slice(1, None, 2), other_run(r, g, False)),
    "alternating, same start": lambda r, g, x, k: put(x, slice(1, None, 2), other_run(r, g, True)),
    "one foreign, other start": lambda r, g, x, k: put(x, k, other_run(r, g, False)),
    "one foreign, same start": lambda r, g, x, k: put(x, k, other_run(r, g, True)),
    "last one foreign": lambda r, g, x, k: put(x, -1, other_run(r, g, False)),
    "noise of 20 % on one": lambda r, g, x, k: put(x, k, x + 0.2 * np.linalg.norm(x[k]) * unit(g)),
    "one scaled by 1.1": lambda r, g, x, k: put(x, k, 1.1 * x),
    "two neighbours exchanged": lambda r, g, x, k: exchange(x, k, k + 1),
    "two distant ones exchanged": lambda r, g, x, k: exchange(x, k, min(len(x) - 2, k + 3)),
}


def path_of(steps: np.ndarray, runs: np.ndarray, weights: bool = True) -> ParameterPath:
    """The sums that a scan of these checkpoints would give; without `weights`, those of a run file."""
    delta = np.diff(runs, axis=0)
    before = np.einsum("ij,ij->i", runs[:-1], delta)
    between = (lambda i, j: float(np.sum((runs[i] - runs[j]) ** 2))) if weights else None
    chosen = np.random.default_rng(len(runs)).permutation(runs.shape[1])[:SAMPLED]
    sampled = squared_distances(runs[:, chosen]) if weights else None
    nothing = [np.nan]
    return ParameterPath(
        np.asarray(steps, dtype=np.int64),
        np.sum(runs**2, axis=1),
        np.concatenate([nothing, before]),
        np.concatenate([nothing, np.sum(delta**2, axis=1)]),
        runs @ runs[0],
        between,
        sampled,
    )
