"""What growth does to a network while it trains: a probe of the whole network, and the attention of training."""
