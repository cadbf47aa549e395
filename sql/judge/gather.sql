-- In: `identified`: records read again; `finishing`: transactions that were in flight and complete now; `sent_again`:
--     records of those that are set aside as duplicates.
-- Out: the earlier records of those transactions.
SELECT i.* EXCEPT (has_row), a.seqno IS NOT NULL AS has_row, f.completes_at
FROM identified i JOIN finishing f ON i.txn = f.txn LEFT JOIN sent_again a ON i.seqno = a.seqno
WHERE NOT i.alone AND i.decision IS NULL
