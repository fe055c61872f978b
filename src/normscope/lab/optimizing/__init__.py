"""How a gradient becomes an update: optimizers, and constraints that hold after each update.

From outside, use `optimizers.build_optimizer` and `constraints.build_constraint`.
"""
