-- In: `decoded`, with what the config's expressions found (`found`, null where an expression failed; `parts`).
-- Out: each record with its transaction. `alone`: it is in none, or one by itself; `fault`: why it cannot even be that;
--     `bad`: what is wrong with a record that does belong to a transaction.
WITH checked AS (
  SELECT *, coalesce({{configured}}, false) AS configured,
    coalesce(bad, CASE WHEN {{unfit}} THEN 'value does not fit the schema' END) AS wrong
  FROM decoded
)
SELECT seqno, kafka, topic, ingested, headers, key, value,
  coalesce(found.id, topic || '/' || partition || '/' || offset) AS txn,
  found.id IS NULL AS alone,
  CASE WHEN NOT configured THEN 'ignored'
       WHEN found.id IS NOT NULL THEN NULL
       WHEN wrong IS NOT NULL THEN wrong
       WHEN found IS NULL THEN 'the id expression fails on it'
       WHEN NOT ({{single}}) THEN 'no transaction id'
  END AS fault,
  CASE WHEN found.id IS NOT NULL
    THEN coalesce(wrong, CASE WHEN parts IS NULL THEN 'the done condition fails on it' END) END AS bad,
  {{record_id}} AS record_id,
  false AS carried{{parts}}{{structs}}
FROM checked
