"""Matrices of many kinds, drawn at random: what training leaves, and what estimates find hard."""

import numpy as np

from tests.weights.spectra.matrices import orthogonal, with_values


def noise(random, rows, columns):
    return random.standard_normal((rows, columns)) * random.uniform(0.01, 0.1)


def spiked(random, rows, columns):
    spikes = int(random.integers(1, 40))
    return noise(random, rows, columns) + with_values(
        random.uniform(0.5, 20, spikes), rows, columns, int(random.integers(1 << 30))
    )


def low_rank_and_noise(random, rows, columns):
    rank = int(random.integers(1, 60))
    thin = random.standard_normal((rows, rank)) @ random.standard_normal((rank, columns))
    return thin + random.uniform(1e-6, 1e-2) * random.standard_normal((rows, columns))


def heavy_entries(random, rows, columns):
    return random.standard_t(random.uniform(1.5, 4), (rows, columns))


def scaled_rows(random, rows, columns):
    return noise(random, rows, columns) * np.geomspace(1, 10.0 ** random.uniform(-6, 0), rows)[:, None]


def power_law(random, rows, columns):
    values = np.arange(1, min(rows, columns) + 1) ** -random.uniform(0.2, 2)
    return with_values(values, rows, columns, int(random.integers(1 << 30)))


def geometric(random, rows, columns):
    values = np.geomspace(1, 10.0 ** random.uniform(-8, -1), min(rows, columns))
    return with_values(values, rows, columns, int(random.integers(1 << 30)))


def repeated(random, rows, columns):
    side = min(rows, columns)
    levels = np.sort(random.uniform(0.1, 3, int(random.integers(1, 6))))[::-1]
    return with_values(
        np.sort(random.choice(levels, side))[::-1], rows, columns, int(random.integers(1 << 30))
    )


def nearly_equal(random, rows, columns):
    side = min(rows, columns)
    cluster = 1 + 10.0 ** random.uniform(-9, -3) * random.standard_normal(int(random.integers(2, 40)))
    rest = random.uniform(0.01, 0.9, side - len(cluster))
    values = np.sort(np.concatenate([cluster, rest]))[::-1]
    return with_values(values, rows, columns, int(random.integers(1 << 30)))


def two_bulks(random, rows, columns):
    half = rows // 2
    matrix = noise(random, rows, columns)
    matrix[:half] *= random.uniform(2, 100)
    return matrix


def sparse(random, rows, columns):
    return random.standard_normal((rows, columns)) * (
        random.random((rows, columns)) < random.uniform(0.005, 0.1)
    )


def product(random, rows, columns):
    side = min(rows, columns)
    return random.standard_normal((rows, side)) @ random.standard_normal((side, columns)) / side


def block_diagonal(random, rows, columns):
    matrix = np.zeros((rows, columns))
    for first in range(0, rows, 50):
        matrix[first : first + 50, first : first + 50] = random.standard_normal(
            matrix[first : first + 50, first : first + 50].shape
        )
    return matrix


def shifted_orthogonal(random, rows, columns):
    small, large = sorted((rows, columns))
    tall = orthogonal(large, small, int(random.integers(1 << 30)))
    both = tall if rows >= columns else tall.T
    return both + 10.0 ** random.uniform(-6, -2) * random.standard_normal((rows, columns))


KINDS = {
    each.__name__: each
    for each in (
        *(noise, spiked, low_rank_and_noise, heavy_entries, scaled_rows, power_law, geometric, repeated),
        *(nearly_equal, two_bulks, sparse, product, block_diagonal, shifted_orthogonal),
    )
}


def draw(kind, seed):
    """A matrix in float32 of a random shape, with its singular values in float64."""
    random = np.random.default_rng([seed, list(KINDS).index(kind)])
    rows, columns = (int(side) for side in random.integers(120, 420, 2))
    matrix = KINDS[kind](random, rows, columns).astype(np.float32)
    return matrix, np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
