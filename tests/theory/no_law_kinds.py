"""Curves that follow none of the laws, over 0 to 1; the full study is benchmarks/no_law.py."""

import numpy as np


def under(rate):
    """The norm under a learning rate: ρ² grows by η²."""

    def curve(x, rng):
        fine = np.linspace(0, 1, 2001)
        grown = np.concatenate([[0.0], np.cumsum(rate(fine[:-1]) ** 2)])
        return np.sqrt(30.0**2 + 150.0**2 * np.interp(x, fine, grown / grown[-1]))

    return curve


def autoregressive(n, phi, rng):
    errors = rng.standard_normal(n)
    for i in range(1, n):
        errors[i] = phi * errors[i - 1] + np.sqrt(1 - phi**2) * errors[i]
    return errors


KINDS = {
    "sine hump": lambda x, rng: 100 + 40 * np.sin(np.pi * 1.2 * x),
    "reset": lambda x, rng: 50 + 100 * np.sqrt(x) - np.where(x > 0.5, 60, 0),
    "cosine": under(lambda x: (1 + np.cos(np.pi * x)) / 2),
    "wsd": under(lambda x: np.minimum(x / 0.05, 1) * np.clip((1 - x) / 0.25, 0, 1)),
    "random walk": lambda x, rng: 100 + np.cumsum(rng.standard_normal(len(x))),
    "damped": lambda x, rng: 100 + 30 * np.exp(-2 * x) * np.cos(6 * np.pi * x),
    "staircase": lambda x, rng: 50 + 20.0 * np.digitize(x, [0.2, 0.45, 0.7]),
    "two regimes": lambda x, rng: 50 + 40 * x + 10 * np.logaddexp(0, (x - 0.5) / 0.05),
    "collapse": lambda x, rng: 60 + 80 * np.sqrt(x) - 55 * (x > 0.45) * np.exp(-3 * np.maximum(x - 0.45, 0)),
    "logistic": lambda x, rng: 50 + 100 / (1 + np.exp(-(x - 0.5) / 0.08)),
    "stationary": lambda x, rng: 100 + autoregressive(len(x), 0.9, rng),
    "correlated hump": lambda x, rng: 100 + 40 * np.sin(4 * x) + 4 * autoregressive(len(x), 0.95, rng),
    "plateau": lambda x, rng: 50 + 100 * np.clip((x - 0.3) / 0.3, 0, 1),
}
