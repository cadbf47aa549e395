"""Formats of keys and values: the schema registry, its wire format, decoding and encoding."""
