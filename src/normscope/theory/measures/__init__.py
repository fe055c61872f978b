"""What the sums in a run file mean: formulas, measures, groupings, and series over the steps.

From outside, use `formulas`, `measures.group`, `series_set.series`, `long_table` and `run_summary`.
"""
