-- In: `assembled`. Out: columns with lists of what is to be looked at one by one: decisions, transactions that were in
--     flight before and finish, those with a bad record, those that sql/judge/runs.sql is to judge, and where in the
--     order of commit the whole ones stand.
-- Only of tiny syncs together with sql/judge/counts.sql, for Spark takes each row through slower code where there is a
-- list to collect; of large ones by themselves, where there is something to list.
  collect_list(CASE WHEN fate IN ('decision', 'no_effect') THEN named_struct(
    'acts', fate = 'decision', 'in_flight', in_flight, 'settles', settled_as, 'txn', txn, 'seqno', seqno,
    'action', decision.action, 'who', decision.who, 'why', decision.why, 'records', decision.late) END) AS decisions,
  collect_list(CASE WHEN from_state AND fate = 'whole' THEN named_struct(
    'txn', txn, 'first', seqno, 'completes_at', completes_at) END) AS finishing,
  collect_set(CASE WHEN transaction_error IS NOT NULL AND fate = 'whole' THEN named_struct(
    'seqno', completes_at, 'error', transaction_error) END) AS bad_transactions,
  collect_set(CASE WHEN multi_run THEN txn END) AS multi_run,
  collect_list(CASE WHEN {{in_order}} AND completing AND fate <> 'alone' THEN settled_as END) AS turns
