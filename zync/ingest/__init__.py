"""Kafka (or a file) to `raw`: consume → batch → append."""
