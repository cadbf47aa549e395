-- In: `judged`, `set_aside` and `decided`, as sql/apply_rules/whole.sql.
--     `r`, if there are any: why a decision does not act, where that is not that there is nothing for it to act on.
-- Out: of each record that is alone, late, a duplicate, or has no effect its row in staging.
WITH single AS (
  SELECT fate, seqno, record_error, CASE WHEN fate <> 'alone' THEN txn END AS txn,
    decision.action IN ('redrive', 'drop') AS revisiting, {{why_late}} AS why_late,
    named_struct('topic', kafka.topic, 'partition', kafka.partition, 'offset', kafka.offset) AS kafka
  FROM judged
  WHERE fate IN ('alone', 'late', 'duplicate', 'repeated_marker', 'no_effect') AND NOT (record_error <=> 'ignored')
    AND NOT (fate = 'duplicate' AND has_row)
    AND NOT (fate = 'no_effect' AND seqno IN (SELECT seqno FROM decided))
)
SELECT CASE WHEN fate IN ('repeated_marker', 'no_effect') THEN 'ignored'
            WHEN fate <> 'alone' THEN fate
            WHEN record_error IS NULL AND q.seqno IS NULL THEN 'done'
            ELSE 'quarantined' END AS kind,
  single.seqno, kafka, txn, array(named_struct('first', single.seqno, 'last', single.seqno)) AS records, 1L AS count,
  CASE fate WHEN 'repeated_marker' THEN 'BEGIN or END of a transaction that was settled already'
            WHEN 'no_effect' THEN coalesce({{why_refused}}, CASE
              WHEN revisiting THEN 'nothing of that was set aside when that was decided'
              ELSE 'no such transaction was in flight when that was decided' END)
            WHEN 'late' THEN why_late
            WHEN 'duplicate' THEN 'its record id came before'
            ELSE coalesce(record_error, q.reason) END AS reason,
  q.rule
FROM single LEFT JOIN set_aside q ON single.seqno = q.seqno AND fate = 'alone' {{refused}}
