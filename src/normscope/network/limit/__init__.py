"""The limit of infinite norm, f(x; cθ) for c → ∞, and what is measured in it.

From outside, use `scaling.scaled`, `saturated.saturated`, `saturation.saturation`,
`joint.saturation_and_heads` and `homogeneity.homogeneity`.
"""
