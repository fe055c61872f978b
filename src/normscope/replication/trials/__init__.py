"""What can be run for a claim: one module per kind of trial, each returning one document per trial.

A document is a mapping with `changes` (the settings that tell the trials of an experiment apart, `seed` among
them) and whatever the kind measures.
"""
