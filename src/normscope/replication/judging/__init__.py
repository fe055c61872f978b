"""From the documents of trials to a verdict: quantities, intervals over seeds, conditions, rules."""
