"""Orbax and T5X checkpoints, read through tensorstore.

From outside, use `orbax`; the other modules connect tensorstore to our storage.
"""
