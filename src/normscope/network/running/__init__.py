"""Run a model: prepare its inputs, switch it to evaluation, scale its parameters, pass batches through it.

From outside, use `batches.Batch`, `scaling.scaled`, `baseline.random_like` and `inputs`.
"""
