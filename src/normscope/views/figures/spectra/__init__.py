"""Figures of singular values: how large, how dense, in how many directions."""
