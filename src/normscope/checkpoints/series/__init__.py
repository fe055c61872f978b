"""From what a user names to an ordered series of checkpoints: finding them, reading their names, following.

From outside, use `series.open_series`, `follow.follow` and `names`.
"""
