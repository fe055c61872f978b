"""What PyTorch writes: zip archives and legacy pickles, read as data without running any of them.

From outside, use `pickles` to open a file; `pickle_values` and `records` also serve other formats
that store pickles.
"""
