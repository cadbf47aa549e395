-- In: `assembled`. Out: one row that says what the driver must know to go on.
SELECT
  collect_set(fate) AS fates,
  count_if(fate = 'again') AS again,
  count_if(fate = 'late') AS late,
  count_if(fate = 'late' AND settled_at IS NULL) AS late_before,
  count_if(fate = 'duplicate') AS duplicate,
  count_if(fate IN ('said', 'void') OR fate = 'alone' AND fault = 'ignored') AS ignored,
  count_if(fate = 'alone' AND fault <> 'ignored') AS faulty,
  count_if(completing AND fault IS NULL) AS completed,
  collect_list(CASE WHEN fate IN ('decision', 'void') THEN named_struct(
    'acts', fate = 'decision', 'flying', flying, 'settles', settled_as, 'txn', txn, 'seqno', seqno,
    'action', decision.action, 'who', decision.who, 'why', decision.why, 'records', decision.late) END) AS decisions,
  unix_micros(max(ingested)) AS ingested,
  collect_list(CASE WHEN carried AND fate = 'whole' THEN named_struct(
    'txn', txn, 'first', seqno, 'completes_at', completes_at) END) AS finishing,
  collect_set(CASE WHEN bad IS NOT NULL AND fate = 'whole' THEN named_struct(
    'seqno', completes_at, 'error', bad) END) AS tainted,
  min(CASE WHEN fate = 'pending' THEN place END) AS open,
  collect_list(CASE WHEN {{in_order}} AND completing AND fate <> 'alone' THEN settled_as END) AS turns,
  collect_set(CASE WHEN torn THEN txn END) AS torn
FROM assembled
