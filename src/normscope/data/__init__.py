"""Data files: the bundled series (see README.md) and the naming tables of model families."""
