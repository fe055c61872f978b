"""Reference series and the tables of model families."""
