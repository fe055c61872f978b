"""A paper or a library as one result: works merged, with key terms and a summary."""
