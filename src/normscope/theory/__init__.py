"""What the numbers mean: laws, budget, dynamics. Never torch."""
