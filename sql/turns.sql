-- In: `settling`; `decided`, the decisions that settle a transaction. With order: commit.
-- Out: of each transaction that waits for its turn the seqno of the record at which it comes: the one that makes it
--     whole, or one before it in the order, whichever is last. (What is by itself, or redriven, has its own seqno.)
WITH ready AS (
  SELECT completes_at AS seqno, max(seqno) AS at FROM settling
  WHERE completes_at IS NOT NULL AND fate <> 'alone'
  GROUP BY completes_at HAVING max(seqno) >= completes_at
  UNION ALL
  SELECT settles AS seqno, seqno AS at FROM decided WHERE action IN ('release', 'discard')
)
SELECT seqno, max(max(at)) OVER (ORDER BY seqno) AS turn FROM ready GROUP BY seqno
