-- In: `made`, output rows with their transactions' turns and positions (sql/places.sql), in buckets that each hold a
--     run of turns, and begin with the offset `first`.
-- Out: staging's output rows, numbered by topic without gap in order of turn, transaction, `_order`, rule and their
--     JSON.
SELECT 'output' AS kind, seqno,
  named_struct('topic', topic, 'partition', 0, 'offset', first - 1 + row_number() OVER (
    PARTITION BY topic, bucket ORDER BY turn, seqno, _order, rule, value, key)) AS kafka,
  key, value, nullif(turn, seqno) AS head, position
FROM made
