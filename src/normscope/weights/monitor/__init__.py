"""Record a live training run: any loop, any sharding.

From outside, use `monitor.Monitor` and `monitor_options.MonitorOptions`.
"""
