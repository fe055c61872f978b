"""Why the norm grows and where it is going: budget, equilibrium, learning rates, forecast.

From outside, use `budget.norm_budget` and `forecast.forecast`.
"""
