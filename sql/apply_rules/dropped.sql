-- In: `decided`, as sql/apply_rules/whole.sql. Out: of each decision to drop what is set aside its row in staging.
SELECT 'discarded' AS kind, seqno, txn, array(named_struct('first', seqno, 'last', seqno)) AS records, 0L AS count,
  revisits AS state, who || ': ' || why AS reason
FROM decided WHERE action = 'drop'
