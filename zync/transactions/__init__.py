"""When a transaction is whole: decode records, assemble them by transaction id, decide which are complete."""
