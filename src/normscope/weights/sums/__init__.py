"""The additive sums of parameters, for bytes on disk (`statistics`) and for live tensors (`live_sums`).

Both use the compiled kernel (`_kernel.c`) where they can and torch (`tensor_sums`) where they
cannot. Nothing else in the package computes these sums.
"""
