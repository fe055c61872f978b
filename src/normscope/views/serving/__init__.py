"""`normscope serve`: the pages of runs under way, from a server that only this machine can ask."""
