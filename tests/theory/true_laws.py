"""Parameters for each law with which it grows by a clear amount over the tests' steps."""

TRUTH = {
    "sqrt": [0.8, 20],
    "linear": [0.003, 20],
    "quartic-root": [7, 20],
    "log": [11, 20],
    "sqrt-linear": [0.7, 900],
    "power": [1.7, 20, 0.4],
    "saturating": [0.004, 20, 5e-5],
    "misaligned-decay": [1.5, 900, 6e-5],
    "aligned": [30, 0.008],
    "piecewise": [0.9, -0.5, 20, 17000],
}
