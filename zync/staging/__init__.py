"""The table `staging`: output rows of whole transactions, bookkeeping and the cursor, one commit a sync."""
