-- In: `assembled`. Out: one row that counts its records by what becomes of them, and those that are `listed`, which
--     sql/judge/lists.sql looks at, here (`lists`) or by itself; times are in microseconds.
SELECT
  count_if(NOT from_state AND fate <> 'reassemble') AS records,
  count_if(fate = 'reassemble') AS again,
  count_if(fate IN ('pending', 'held')) AS in_flight,
  count_if(fate IN ('alone', 'late', 'duplicate', 'repeated_marker', 'no_effect')) AS single,
  count_if(fate = 'late') AS late,
  count_if(fate = 'late' AND settled_at IS NULL) AS late_to_earlier,
  count_if(fate = 'duplicate' AND NOT has_row) AS duplicate,
  count_if(fate IN ('repeated_marker', 'no_effect') OR fate = 'alone' AND record_error = 'ignored') AS ignored,
  count_if(fate = 'alone' AND record_error <> 'ignored') AS bad_records,
  count_if(completing AND record_error IS NULL) AS completed,
  count_if({{truncating}}) AS truncating,
  count_if({{listed}}) AS listed,
  coalesce(bool_or({{left_out}}), false) AS left_out,
  unix_micros(max(ingested)) AS ingested,
  min(CASE WHEN fate = 'pending' THEN end_seqno END) AS open,
  coalesce(bool_or({{documents}}), false) AS documents{{lists}}
FROM assembled
