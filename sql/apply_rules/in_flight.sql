-- In: `judged` and `decided`, as sql/apply_rules/whole.sql.
-- Out: of each transaction in flight that records, or a decision, came of after seqno `known`, its row in staging.
-- What was sent again of a transaction in flight is no member of it, but may be part of a run that completes it.
WITH members AS (
  SELECT *, fate <> 'duplicate' AS member FROM judged
  WHERE fate IN ('pending', 'held') OR fate = 'duplicate' AND settled_at IS NULL
),
in_flight AS (
  SELECT txn, min(CASE WHEN member THEN seqno END) AS first,
    bool_and((from_state OR seqno <= {{known}}) AND (fate <> 'held' OR settled_at <= {{known}})) AS untouched,
    min_by(ingested, seqno) FILTER (WHERE member) AS since,
    count_if(member AND NOT from_state) + coalesce(sum(earlier_count), 0) AS count,
    concat(flatten(collect_list(earlier)),
      CAST(arrays_zip(sort_array(collect_list(CASE WHEN member AND NOT from_state AND opens_range THEN seqno END)),
                      sort_array(collect_list(CASE WHEN member AND NOT from_state AND closes_range THEN seqno END)))
           AS array<struct<first: bigint, last: bigint>>)) AS records,
    {{state}} AS state, min(end_seqno) AS end_seqno, CASE WHEN bool_or(fate = 'held') THEN true END AS held,
    min(CASE WHEN fate = 'held' THEN settled_as END) AS held_as,
    min_by(transaction_error, seqno) FILTER (WHERE transaction_error IS NOT NULL) AS transaction_error
  FROM members GROUP BY txn
)
SELECT CASE WHEN since <= {{expired}} THEN 'expired' ELSE 'pending' END AS kind, first AS seqno, in_flight.txn,
  concat(records, CASE WHEN d.seqno IS NULL THEN array()
                       ELSE array(named_struct('first', d.seqno, 'last', d.seqno)) END) AS records,
  count, since,
  to_json(named_struct('done', state, 'held', held, 'place', coalesce(held_as, end_seqno),
    'decided', CASE WHEN d.seqno IS NOT NULL
      THEN named_struct('seqno', d.seqno, 'action', d.action, 'who', d.who, 'why', d.why) END), {{json_options}})
    AS state,
  transaction_error AS reason
FROM in_flight LEFT JOIN decided d ON held_as = d.settles WHERE NOT untouched
