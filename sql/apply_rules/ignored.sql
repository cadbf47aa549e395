-- In: `judged`. Out: the records of topics that the config does not name, as ranges, some thousand records a row.
WITH marked AS (
  SELECT kafka.topic AS topic, seqno, seqno DIV 10000 AS block,
    coalesce(lag(seqno) OVER one <> seqno - 1, true) AS opens_range,
    coalesce(lead(seqno) OVER one <> seqno + 1, true) AS closes_range
  FROM judged WHERE record_error = 'ignored'
  WINDOW one AS (PARTITION BY kafka.topic, seqno DIV 10000 ORDER BY seqno)
)
SELECT 'ignored' AS kind, max(seqno) AS seqno,
  named_struct('topic', topic, 'partition', CAST(NULL AS INT), 'offset', CAST(NULL AS BIGINT)) AS kafka,
  CAST(arrays_zip(sort_array(collect_list(CASE WHEN opens_range THEN seqno END)),
                  sort_array(collect_list(CASE WHEN closes_range THEN seqno END)))
       AS array<struct<first: bigint, last: bigint>>) AS records,
  count(*) AS count, 'the config names no such topic' AS reason
FROM marked GROUP BY topic, block
