"""What is measured by running a model: saturation, heads, homogeneity, look-ahead.

Most of it concerns the limit of infinite norm, f(x; cθ) for c → ∞. From outside, use
`saturation.saturation`, `heads.heads`, `joint.saturation_and_heads`, `homogeneity.homogeneity`,
`lookahead.looks_ahead` and `saturated.saturated`.
"""
