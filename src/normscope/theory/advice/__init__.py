"""What a careful colleague would say about a training run: rules over what the run file knows.

From outside, use `advise.advise`.
"""
