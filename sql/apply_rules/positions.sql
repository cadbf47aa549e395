-- In: `outgoing`: the records of what is settled now; `decided`, the decisions that settle a transaction.
-- Out: of each transaction, by its seqno, its `position` in the source's order of commit, and its `turn`, with
--     order: commit: the seqno of the record at which it comes, which is the one that makes it whole, or one before it
--     in the order, whichever is last. (What is by itself, or redriven, does not wait.) Where operators decided, what
--     goes out without its END has the position of its `last_row`.
WITH settled AS (
  SELECT completes_at AS seqno, coalesce(max(position), {{last_row}}) AS position,
    CASE WHEN bool_or(fate <> 'alone') AND max(seqno) >= completes_at THEN max(seqno) END AS at
  FROM (SELECT *, {{body}} AS body FROM outgoing) GROUP BY completes_at
  UNION ALL
  SELECT settles, NULL, seqno FROM decided WHERE action IN ('release', 'discard')
)
SELECT seqno, max(position) AS position,
  CASE WHEN {{in_order}} AND max(at) IS NOT NULL THEN max(max(at)) OVER (ORDER BY seqno) END AS turn
FROM settled GROUP BY seqno
