"""A paper or a library as one result: bundled, kept or fetched works, merged, with key terms and a summary."""
