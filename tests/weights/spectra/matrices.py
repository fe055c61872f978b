"""Matrices whose singular values are known or hard to find."""

import numpy as np


def orthogonal(rows, columns, seed):
    """Orthonormal columns [rows, columns]."""
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((rows, columns)))[0]


def with_values(values, rows, columns, seed=0):
    """A matrix [rows, columns] with exactly these singular values."""
    left, right = orthogonal(rows, len(values), seed), orthogonal(columns, len(values), seed + 1)
    return (left * values) @ right.T


def hard_cases():
    """Name → (matrix, its singular values), all too large for chance to hide a fault."""
    side, other = 300, 420
    falling = np.arange(1, side + 1) ** -0.7
    values = {
        "repeated largest": np.concatenate([np.full(5, 3.0), np.linspace(2.0, 0.1, side - 5)]),
        "more repeated than a block has vectors": np.concatenate(
            [np.full(24, 3.0), np.linspace(2, 0.1, side - 24)]
        ),
        "nearly equal": np.concatenate([3 + np.arange(8)[::-1] * 1e-7, np.linspace(1, 0.1, side - 8)]),
        "rank one": np.concatenate([[7.0], np.zeros(side - 1)]),
        "rank ten": np.concatenate([np.linspace(2, 1, 10), np.zeros(side - 10)]),
        "a million to one": np.geomspace(1, 1e-6, side),
        "power law": falling,
        "all equal": np.ones(side),
        "huge": falling * 1e30,
        "tiny": falling * 1e-30,
    }
    return {name: (with_values(each, side, other), each) for name, each in values.items()}


def emd(values, weights, reference):
    """Earth mover's distance between a weighted spectrum and all singular values."""
    order = np.argsort(values)
    upto = np.cumsum(weights[order]) / np.sum(weights)
    places = (np.arange(len(reference)) + 0.5) / len(reference)
    found = values[order][np.minimum(np.searchsorted(upto, places), len(values) - 1)]
    return np.mean(np.abs(found - np.sort(reference)))
