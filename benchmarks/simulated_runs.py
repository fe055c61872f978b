"""Training runs without a network: parameter vectors that walk, drift, decay and oscillate.

θ ← (1 − ηλ)θ + η(drift + noise), with a slowly turning drift, plus directions that
oscillate with an amplitude that follows the learning rate (so that a decay of it makes
the norm fall, as in real runs). Norms, cosines and updates are those of true vectors,
hence consistent with each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.run_families import Family, family_of_rows

DIMENSION = 3000
TENSORS = 3
SPIKE_PIECES = (0, 1, 2)  # of one link: it has recovered when the next checkpoint is saved
FORK = 0.4  # of the checkpoints: where the resumed run begins
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
    "spike",
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
    pace: float  # of all moves: small for fine-tuning
    moving: float  # share of the parameters that are trained
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
        pace=float(rng.choice([1.0, 1.0, 0.1, 0.01])),
        moving=float(rng.choice([1.0, 1.0, 0.1])),
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


def rate_jumps(schedule: str, phase: float) -> list[float]:
    """The fractions of training at which the learning rate jumps."""
    turns = 2 + int(3 * phase)
    return {
        "drops": [0.3 + 0.3 * phase, 0.8],
        "restarts": [(turn - phase) / turns for turn in range(1, turns + 1)],
        "cooldown-restart": [0.4 + 0.3 * phase],
        "spike": [0.3 + 0.4 * phase],
    }.get(schedule, [])


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
        if recipe.schedule == "spike" and begin < 0.3 + 0.4 * phase <= end and piece in SPIKE_PIECES:
            eta = 8.0
        trained = slice(0, int(recipe.moving * DIMENSION))
        move = recipe.drift * eta * width * state.drift + recipe.noise * eta * np.sqrt(width) * unit(rng)
        state.theta[trained] *= np.exp(-recipe.pace * recipe.decay * eta * width)
        state.theta[trained] += recipe.pace * move[trained]
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
    theta[: len(state.swings)] += recipe.pace * state.swings
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


def moving_average(runs: np.ndarray, decay: float) -> np.ndarray:
    """A moving average of the checkpoints, by checkpoints."""
    found = [runs[0]]
    for row in runs[1:]:
        found.append(decay * found[-1] + (1 - decay) * row)
    return np.array(found)


def simulated_family(recipe: Recipe, rng: np.random.Generator) -> Family:
    """The runs a, b, c and d of one recipe, and moving averages."""
    a = simulate(recipe)
    fork = max(1, int(FORK * len(a)))
    runs = {
        "a": a,
        "b": other_run(recipe, rng, True),
        "c": other_run(recipe, rng, False),
        "d": simulate(recipe, int(rng.integers(1 << 40)), state_at(recipe, fork), fork),
    }
    runs |= {f"a ema{decay}": moving_average(a, decay) for decay in (0.5, 0.8, 0.9)}
    jumps = [x * recipe.steps[-1] for x in rate_jumps(recipe.schedule, recipe.seed % 1000 / 1000)]
    return family_of_rows(recipe.schedule, recipe.steps, runs, TENSORS, jumps)
