-- In: `identified`: records with their transaction (`txn`), those of one in one task, and what they bring to `done`
--     (`p0`, `p1`, …); transactions in flight come as one row each (`from_state`), which has their state. `settled`:
--     transactions settled lately.
-- Out: every row with its lane, and `done`'s aggregates so far in it. Only rows of lane txn can complete a transaction.
WITH met AS (
  SELECT i.*, i.seqno - s.settled_at <= {{remember}} AS late
  FROM identified i LEFT JOIN settled s ON i.txn = s.txn AND NOT i.alone
),
laned AS (
  SELECT * EXCEPT (late),
    CASE WHEN alone THEN 'alone'
         WHEN decision IS NOT NULL THEN 'decision'
         WHEN late THEN 'late'
         WHEN {{repeated}} THEN 'duplicate'
         ELSE 'txn' END AS lane
  FROM met
)
SELECT *, {{aggregates}}
  lag(CASE WHEN NOT from_state THEN seqno END) OVER (PARTITION BY txn, lane ORDER BY seqno) AS previous,
  lead(seqno) OVER (PARTITION BY txn, lane ORDER BY seqno) AS following
FROM laned
WINDOW so_far AS (PARTITION BY txn, lane ORDER BY seqno ROWS UNBOUNDED PRECEDING)
