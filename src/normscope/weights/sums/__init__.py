"""The additive sums of parameters, for bytes on disk (`statistics`) and for live tensors (`live_sums`).

Every number normscope knows about parameters follows from these sums; nothing else in the package
computes them.
"""
