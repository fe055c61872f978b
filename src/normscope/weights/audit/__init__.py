"""Decide whether a series of checkpoints is what its labels claim; the checks are in `soundness`."""
