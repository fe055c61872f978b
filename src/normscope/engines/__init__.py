"""Where work runs: the names of engines, local processes, Ray, Dask, any executor; nodes are checked first.

From outside, use `engine.open_engine` and `node_check.check_nodes`.
"""
