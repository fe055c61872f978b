"""From any source to its page: what a source is, what is measured of it first, and where that is kept.

Outside this folder only `source_report` is used.
"""
