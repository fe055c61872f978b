"""One rank's part of a record: the sums of parameters, updates and gradients, and the rates."""
