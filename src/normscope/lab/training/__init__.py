"""Train one small transformer, with its checkpoints, records and observers.

From outside, use `train.train`.
"""
