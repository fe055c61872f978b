"""The spectral norm of every matrix of a model in training, kept up with a few products a record."""
