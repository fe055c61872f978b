"""Reading tensors for the sums: through which checkpoints, in which parts, mapped or read."""
