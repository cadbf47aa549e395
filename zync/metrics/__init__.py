"""Metrics for Prometheus and their HTTP server; each process defines its metrics beside its code."""
