"""What the sums in a run file mean: measures, groupings, scopes, and series of them over the steps."""
