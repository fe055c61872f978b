"""What the measurements mean: measures, growth laws, dynamics, and a summary of them.

numpy and scipy, never torch. From outside, use the functions that the folders name, and `answer`.
"""
