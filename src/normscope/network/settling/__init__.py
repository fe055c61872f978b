"""Where the limit c → ∞ is: the scale and the precision at which a network is measured as a saturated one.

From outside, use `full_text.measure`, `watchers` and `head_types`.
"""
