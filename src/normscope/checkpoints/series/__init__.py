"""From what a user points at to an ordered series of checkpoints: discovery, names, order, following.

From outside, use `series.open_series`, `follow.follow` and `names`.
"""
