"""A live training run, recorded while it trains: any loop, any sharding.

From outside, use `monitor.Monitor` and `monitor_options.MonitorOptions`.
"""
