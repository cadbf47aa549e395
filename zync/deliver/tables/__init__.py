"""Delivery to typed Delta tables by MERGE (upsert, history) or append, with snapshots over all tables."""
