"""What a text is about: words and pairs of words, how rare they are, key terms, and a summary."""
