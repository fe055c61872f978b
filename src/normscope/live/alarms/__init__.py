"""Early warnings from a live run."""
