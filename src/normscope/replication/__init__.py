"""Papers' claims as data, and what runs them: experiments, numbers with intervals over seeds, verdicts.

A claim is a file in `claims/`, an experiment a file in `experiments/`. The code knows neither by name: it
runs the experiments, computes the numbers that a claim asks for, and applies the claim's rules.
"""
