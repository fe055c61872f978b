"""Run a model: find and load it, prepare its inputs, switch it to evaluation, pass batches through it."""
