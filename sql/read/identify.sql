-- In: `decoded`, with what the config's expressions found (`found`, null where an expression failed; so are
--     `contributions`).
--     `reserved`: whether it is an operator's decision.
-- Out: each record with its transaction. `alone`: it is in none, or one by itself; `record_error`: why it cannot even
--     be that; `transaction_error`: what is wrong with a record that does belong to a transaction. `from_state` and
--     `has_row` are false here. Of what is known of earlier syncs: `from_state` marks the state of a transaction in
--     flight, which is no record; `has_row` records that staging has a row of already.
WITH checked AS (
  SELECT *, coalesce({{configured}}, false) AS configured, {{reserved}} AS ours,
    coalesce(decode_error, {{unfit}}, {{no_envelope}}) AS error
  FROM decoded
)
-- An operator's decision is a record of the reserved topic: it belongs to the transaction that it decides.
SELECT seqno, kafka, topic, ingested, headers, key, value,
  coalesce(found.id, topic || '/' || partition || '/' || offset) AS txn,
  found.id IS NULL AS alone,
  CASE WHEN NOT configured AND NOT ours THEN 'ignored'
       WHEN found.id IS NOT NULL THEN NULL
       WHEN ours THEN 'not a decision of an operator'
       WHEN error IS NOT NULL THEN error
       WHEN found IS NULL THEN 'the id expression fails on it'
       WHEN NOT ({{single}}) THEN 'no transaction id'
  END AS record_error,
  CASE WHEN found.id IS NOT NULL AND NOT ours
    THEN coalesce(error, CASE WHEN contributions IS NULL THEN 'the done condition fails on it' END)
    END AS transaction_error,
  CASE WHEN ours AND found.id IS NOT NULL THEN named_struct('action', try_variant_get(value, '$.decision', 'string'),
    'who', try_variant_get(value, '$.who', 'string'), 'why', try_variant_get(value, '$.why', 'string'),
    'late', try_variant_get(value, '$.late', 'array<struct<first: bigint, last: bigint>>')) END AS decision,
  {{record_id}} AS record_id,
  false AS from_state, false AS has_row{{parts}}{{structs}}
FROM checked
