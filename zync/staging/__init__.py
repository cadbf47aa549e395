"""Output rows and bookkeeping to `staging`: number → write → commit."""
