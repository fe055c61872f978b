"""Spectra of a series of checkpoints: which matrices there are, what is measured of them, rows of the run
file."""
