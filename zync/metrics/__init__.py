"""Metrics for Prometheus and the HTTP server that answers for them; each process defines its own beside its code."""
