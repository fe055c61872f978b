"""The page of a replication: one section per claim, drawn from results.json and nothing else."""
