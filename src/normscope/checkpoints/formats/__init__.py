"""One module per checkpoint format, which turns files into a `Checkpoint`, and what several formats share.

From outside, use `registry`. The only other importer of format modules is `series.discovery`, for
formats whose checkpoints consist of several files.
"""
