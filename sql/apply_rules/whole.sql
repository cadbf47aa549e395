-- In: `judged`: every new record with its fate, and what is known of the earlier ones of their transactions, a row
--     each (`from_state`); `set_aside`: transactions (by seqno) that go to quarantine instead of out; `decided`:
--     operators' decisions, the seqno of the transaction that each `settles`, and what a redrive `revisits`
--     (zync.staging.set_aside), as JSON.
-- Out: of each transaction that is settled now its row in staging.
WITH whole AS (
  SELECT txn, completes_at, count_if(NOT from_state) + coalesce(sum(earlier_count), 0) AS count,
    concat(flatten(collect_list(earlier)),
      CAST(arrays_zip(sort_array(collect_list(CASE WHEN NOT from_state AND opens_range THEN seqno END)),
                      sort_array(collect_list(CASE WHEN NOT from_state AND closes_range THEN seqno END)))
           AS array<struct<first: bigint, last: bigint>>)) AS records
  FROM judged WHERE fate = 'whole' GROUP BY txn, completes_at
)
SELECT CASE WHEN q.seqno IS NOT NULL THEN 'quarantined'
            WHEN d.action = 'discard' THEN 'discarded'
            WHEN d.action = 'release' THEN 'released'
            ELSE 'done' END AS kind,
  completes_at AS seqno, whole.txn, count,
  concat(records, CASE WHEN d.seqno IS NULL THEN array()
                       ELSE array(named_struct('first', d.seqno, 'last', d.seqno)) END) AS records,
  d.revisits AS state, coalesce(q.reason, d.who || ': ' || d.why) AS reason, q.rule
FROM whole LEFT JOIN set_aside q ON completes_at = q.seqno LEFT JOIN decided d ON completes_at = d.settles
