"""Observe a model from outside: its attention calls, its blocks, and the hidden states between them.

From outside, use `tap.tap`, `block_lists.find_blocks` and `hidden_states.visiting`.
"""
