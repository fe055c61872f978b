"""The attention heads of a checkpoint: how many there are, the matrices of each, what bounds their logits."""
