-- The transfer.
SELECT seqno, txn, row.tid, row.bid, row.aid, row.delta FROM pgbench_history
