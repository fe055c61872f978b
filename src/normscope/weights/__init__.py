"""What is computed from parameters alone."""
