"""Whole transactions to output rows: the user's rules."""
