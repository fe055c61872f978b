"""Weights stored as small numbers and scales: recognised by names, dtypes and shapes, read as float32.

One module per layout. Each says which tensors it takes, under which name and shape the weight is, and how
a range of it is computed; `schemes` lists them.
"""
