"""What is computed by running the model."""
