"""One module per figure or section: from results of `theory` and rows of a run file to figures and tables."""
