"""Which run file a source names, and the norms that a training recorded in it by itself.

From outside, use `run_places.run_place` and `recorded_norms.recorded_norm`.
"""
