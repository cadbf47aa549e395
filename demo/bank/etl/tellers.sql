-- The teller as the transaction left it.
SELECT seqno, _order, row.tid, row.bid, row.tbalance, op = 'd' AS _delete FROM pgbench_tellers
