"""Delivery to Kafka topics: each Kafka transaction holds whole source transactions."""
