"""Train many small transformers as one experiment, on local processes or on any executor.

From outside, use `sweep.sweep`.
"""
