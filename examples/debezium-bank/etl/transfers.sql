-- The transfer, with the id that its transaction has in the database.
SELECT seqno, txn, row.id, row.from_account, row.to_account, row.amount FROM transfers
