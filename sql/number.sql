-- In: `made`, one topic's output rows; `first_offset`. Out: staging's output rows, numbered without gap from there.
SELECT 'output' AS kind, seqno,
  named_struct('topic', f.topic, 'partition', 0,
               'offset', f.first + row_number() OVER (ORDER BY seqno, _order, rule, value, key) - 1) AS kafka,
  key, value
FROM made CROSS JOIN first_offset f
