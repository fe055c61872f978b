"""The report of a run or of a series, and the report of a sweep: which sections, in which order.

Outside this folder only `report.report` is used.
"""
