"""Growth laws: fitting them, intervals, choosing among them, comparing groups and runs.

From outside, use `growth.fit_growth`, `groups.fit_groups` and `compare.compare`.
"""
