"""Fuzzing by grammar: files that are almost right, each read in a child process that is watched.

`grammars` has one module per family of formats: it writes mutants (shared references, lies about sizes,
overlaps, damaged bytes) and knows which numbers are right, from somebody else's reader or from what it wrote.
`watched` reads one mutant and judges it, `children` runs many in child processes;
`python -m tests.fuzz --cases 10000` prints the table.
"""
