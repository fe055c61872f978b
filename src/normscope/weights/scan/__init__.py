"""Measure a series of checkpoints into a run file.

From outside, use `scan.scan` and `scan.scan_series`.
"""
