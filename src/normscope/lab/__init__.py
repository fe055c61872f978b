"""Small transformers to experiment on."""
