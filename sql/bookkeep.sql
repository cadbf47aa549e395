-- In: `settling`: every record with its fate, and those gathered; `set_aside`: transactions (by seqno) that go to
--     quarantine instead of out; `decided`: operators' decisions, the seqno of the transaction that each `settles`,
--     and what a redrive or drop `revisits` (zync.transactions.set_aside), as JSON.
-- Out: staging's bookkeeping rows: one for each transaction, whole or in flight, and one for each record that is
--     alone, late or a duplicate.
WITH whole AS (
  SELECT txn, completes_at, count(*) AS count,
    zip_with(array_sort(collect_list(CASE WHEN opens_range THEN seqno END)),
             array_sort(collect_list(CASE WHEN closes_range THEN seqno END)),
             (a, b) -> named_struct('first', a, 'last', b)) AS records
  FROM settling WHERE fate = 'whole' AND NOT carried GROUP BY txn, completes_at
),
-- What was sent again of a transaction in flight is no member of it, but may be part of a run that completes it.
flying AS (
  SELECT *, fate <> 'duplicate' AS member FROM settling
  WHERE fate IN ('pending', 'held') OR fate = 'duplicate' AND settled_at IS NULL
),
in_flight AS (
  SELECT txn, min(CASE WHEN member THEN seqno END) AS first, bool_and(carried AND fate <> 'held') AS untouched,
    min_by(ingested, seqno) FILTER (WHERE member) AS since,
    count_if(member AND NOT carried) + coalesce(sum(earlier_count), 0) AS count,
    concat(flatten(collect_list(earlier)),
      zip_with(array_sort(collect_list(CASE WHEN member AND NOT carried AND opens_range THEN seqno END)),
               array_sort(collect_list(CASE WHEN member AND NOT carried AND closes_range THEN seqno END)),
               (a, b) -> named_struct('first', a, 'last', b))) AS records,
    {{state}} AS state, min(place) AS place, CASE WHEN bool_or(fate = 'held') THEN true END AS held,
    min(CASE WHEN fate = 'held' THEN settled_as END) AS held_as,
    min_by(bad, seqno) FILTER (WHERE bad IS NOT NULL) AS bad
  FROM flying GROUP BY txn
),
single AS (
  SELECT fate, seqno, fault, CASE WHEN fate <> 'alone' THEN txn END AS txn, seqno AS completes_at,
    named_struct('topic', kafka.topic, 'partition', kafka.partition, 'offset', kafka.offset) AS place,
    array(named_struct('first', seqno, 'last', seqno)) AS records
  FROM settling
  WHERE fate IN ('alone', 'late', 'duplicate', 'said', 'void') AND NOT (fault <=> 'ignored')
    AND NOT (fate = 'duplicate' AND reread)
    AND NOT (fate = 'void' AND seqno IN (SELECT seqno FROM decided))
)
SELECT CASE WHEN q.seqno IS NOT NULL THEN 'quarantined'
            WHEN d.action = 'discard' THEN 'discarded'
            WHEN d.action = 'release' THEN 'released'
            ELSE 'done' END AS kind,
  completes_at AS seqno, NULL AS kafka, whole.txn,
  concat(records, CASE WHEN d.seqno IS NULL THEN array()
                       ELSE array(named_struct('first', d.seqno, 'last', d.seqno)) END) AS records,
  count, NULL AS since, d.revisits AS state, coalesce(q.reason, d.who || ': ' || d.why) AS reason, q.rule
FROM whole LEFT JOIN set_aside q ON completes_at = q.seqno LEFT JOIN decided d ON completes_at = d.settles
UNION ALL
SELECT 'discarded', seqno, NULL, txn, array(named_struct('first', seqno, 'last', seqno)), 0, NULL, revisits,
  who || ': ' || why, NULL
FROM decided WHERE action = 'drop'
UNION ALL
SELECT CASE WHEN since <= {{expired}} THEN 'expired' ELSE 'pending' END, first, NULL, in_flight.txn,
  concat(records, CASE WHEN d.seqno IS NULL THEN array()
                       ELSE array(named_struct('first', d.seqno, 'last', d.seqno)) END),
  count, since,
  to_json(named_struct('done', state, 'held', held, 'place', coalesce(held_as, place),
    'decided', CASE WHEN d.seqno IS NOT NULL
      THEN named_struct('seqno', d.seqno, 'action', d.action, 'who', d.who, 'why', d.why) END), {{json_options}}),
  bad, NULL
FROM in_flight LEFT JOIN decided d ON held_as = d.settles WHERE NOT untouched
UNION ALL
SELECT CASE WHEN fate IN ('said', 'void') THEN 'ignored'
            WHEN fate <> 'alone' THEN fate
            WHEN fault IS NULL AND q.seqno IS NULL THEN 'done'
            ELSE 'quarantined' END,
  completes_at, place, txn, records, 1, NULL, NULL,
  CASE fate WHEN 'said' THEN 'BEGIN or END of a transaction that was settled already'
            WHEN 'void' THEN 'no such transaction was in flight when that was decided'
            WHEN 'late' THEN 'its transaction was settled already'
            WHEN 'duplicate' THEN 'its record id came before'
            ELSE coalesce(fault, q.reason) END, q.rule
FROM single LEFT JOIN set_aside q ON completes_at = q.seqno AND fate = 'alone'
