-- The branch as the transaction left it.
SELECT seqno, _order, row.bid, row.bbalance, op = 'd' AS _delete FROM pgbench_branches
