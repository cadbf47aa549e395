-- In: `staged`: staging's rows of one output topic that a table does not have yet; `before`: of keys (as text) where in
--     the source's order the table has, or had, rows of them; `truncations`: of the topic.
-- Out: the same, of which each has a position. The source gives none to a snapshot's row without LSN, nor to what was
--     released without it: it comes after all of its key that went out before it, and before all that goes out after it
--     (of which the position is greater).
WITH unplaced AS (SELECT DISTINCT key, seqno, coalesce(head, seqno) AS turn FROM staged WHERE position IS NULL),
found AS (
  SELECT u.key, u.seqno, b.position FROM unplaced u JOIN before b ON u.key = b.key AND b.seqno < u.seqno
  UNION ALL
  SELECT u.key, u.seqno, t.position FROM unplaced u JOIN truncations t ON t.turn < u.turn
),
least AS (SELECT key, seqno, max(position) AS position FROM found GROUP BY key, seqno)
SELECT s.* EXCEPT (position),
  coalesce(s.position, greatest(0L, least.position, max(s.position) OVER (
    PARTITION BY s.key ORDER BY s.sync, coalesce(s.head, s.seqno), s.seqno ROWS UNBOUNDED PRECEDING))) AS position
FROM staged s LEFT JOIN least ON s.key = least.key AND s.seqno = least.seqno AND s.position IS NULL
