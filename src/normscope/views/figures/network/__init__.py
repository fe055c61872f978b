"""Figures of what was measured by running the network: saturation, heads, homogeneity, look-ahead."""
