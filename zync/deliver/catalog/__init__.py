"""Registers delivered tables in a catalog, so that other engines find them by name."""
