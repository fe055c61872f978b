"""Which tensors of a series are parameters, and which checkpoints of it belong together."""
