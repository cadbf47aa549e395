-- In: `made`, output rows with their transactions' turns and positions (sql/apply_rules/positions.sql), in buckets that
--     each hold a run of turns.
-- Out: the same, each with its `row_number` among those of its topic in the bucket, from 1, in order of turn,
--     transaction, `_order`, rule and their JSON.
SELECT topic, bucket, seqno, key, value, nullif(turn, seqno) AS head, position, state{{marked}},
  row_number() OVER (PARTITION BY topic, bucket ORDER BY turn, seqno, _order, rule, value, key) AS row_number
FROM made
