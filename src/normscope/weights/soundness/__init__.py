"""Signs that a series is not what its labels claim: in its headers, sums and a sample of its weights."""
