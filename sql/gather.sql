-- In: `identified`: records read again; `finishing`: transactions that were in flight and complete now; `sent_again`:
--     records of those that are set aside as duplicates.
-- Out: the earlier records of those transactions.
SELECT i.* EXCEPT (judged), a.seqno IS NOT NULL AS judged, f.completes_at,
  coalesce(lag(i.seqno) OVER one <> i.seqno - 1, true) AS opens_range,
  coalesce(lead(i.seqno) OVER one <> i.seqno + 1, true) AS closes_range
FROM identified i JOIN finishing f ON i.txn = f.txn LEFT JOIN sent_again a ON i.seqno = a.seqno
WHERE NOT i.alone AND i.decision IS NULL
WINDOW one AS (PARTITION BY i.txn ORDER BY i.seqno)
