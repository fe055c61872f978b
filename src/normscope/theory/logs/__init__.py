"""Training logs that other tools wrote: one module per format, and the choice of their columns by name.

From outside, use `log_registry.read_log`, `column_choice` and `rate_columns.recorded_rates`.
"""
