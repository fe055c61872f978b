"""What is monitored: the parameters that each rank holds, the modules they are of, the optimizers."""
