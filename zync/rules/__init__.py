"""The user's rules: views, plans, lookups, running them over whole transactions, finding transactions that fail."""
