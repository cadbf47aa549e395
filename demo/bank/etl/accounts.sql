-- The account as the transaction left it.
SELECT seqno, _order, row.aid, row.bid, row.abalance, op = 'd' AS _delete FROM pgbench_accounts
