"""Delivery to typed Delta tables: MERGE (upsert, history) or append, and snapshots over all tables."""
