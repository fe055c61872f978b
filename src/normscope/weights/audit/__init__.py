"""Decide whether a series of checkpoints is what its labels claim.

From outside, use `audit.audit`; `findings` defines what it returns.
"""
