"""Singular values of matrices, exact or estimated with their errors, and what follows from them; NumPy and
SciPy only."""
