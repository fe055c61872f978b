"""Finite automata: those of formal languages, and those that networks turn out to be."""
