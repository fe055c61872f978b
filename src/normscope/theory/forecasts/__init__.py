"""Where the norm is going: candidates, their backtests, intervals, plans.

From outside, use `forecast.forecast` and `backtest.backtest`.
"""
