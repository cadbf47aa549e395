"""Staging → the outside: Kafka topics and lake tables, whole transactions, each exactly once."""
