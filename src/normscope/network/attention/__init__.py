"""Watch attention from outside the model, and describe what each head does.

From outside, use `heads.heads`, `lookahead.looks_ahead` and `tap`.
"""
