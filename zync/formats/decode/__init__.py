"""Decoding: bytes of a format to VARIANT, a module for each format."""
