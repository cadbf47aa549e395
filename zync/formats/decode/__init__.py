"""Decoding: bytes of a format to VARIANT, a module a format."""
