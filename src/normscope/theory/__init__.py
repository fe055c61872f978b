"""What the measurements mean: measures, growth laws, dynamics, and a summary of them.

Uses numpy and scipy, never torch. From outside, use `answer` and the functions that the docstrings of the
folders name.
"""
