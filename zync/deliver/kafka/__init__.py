"""Delivery to Kafka topics: whole source transactions inside Kafka transactions."""
