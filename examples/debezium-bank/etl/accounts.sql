-- The account as the transaction left it; a delete takes it away.
SELECT seqno, _order, row.id, row.owner, row.balance, op = 'd' AS _delete FROM accounts
