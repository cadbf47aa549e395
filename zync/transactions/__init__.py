"""Transactions: decode records, assemble them by transaction id, and decide which transactions are complete."""
