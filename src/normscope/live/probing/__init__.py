"""What growth does to a network in training: a probe of all of it, and the attention of training."""
