-- In: `identified`: records read again; `finishing`: transactions that were in flight and complete now.
-- Out: the earlier records of those.
SELECT i.* EXCEPT (reread), true AS reread, f.completes_at,
  coalesce(lag(i.seqno) OVER one <> i.seqno - 1, true) AS opens_range,
  coalesce(lead(i.seqno) OVER one <> i.seqno + 1, true) AS closes_range
FROM identified i JOIN finishing f ON i.txn = f.txn
WHERE NOT i.alone AND i.decision IS NULL
WINDOW one AS (PARTITION BY i.txn ORDER BY i.seqno)
