"""What is computed by running the model: saturation, attention heads, homogeneity.

From outside, use `study` to measure a model or a series into a run file, and the functions that
`measuring` and `running` name.
"""
