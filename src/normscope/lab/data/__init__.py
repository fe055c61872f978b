"""Training data: formal languages and text, tokenised, in batches."""
