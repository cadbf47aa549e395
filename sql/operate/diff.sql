-- In: `one`, `other`: two stagings. Out: output rows that are not the same in both, matched by topic, transaction, key
--     and the how-manieth of these they are. Where one was made of a raw that was trimmed, from there on only.
WITH start AS (
  SELECT coalesce(max(seqno), 0) AS trimmed
  FROM (SELECT kind, seqno FROM one UNION ALL SELECT kind, seqno FROM other) WHERE kind = 'trimmed'
),
a AS (
  SELECT kafka.topic AS topic, seqno, key, value,
    row_number() OVER (PARTITION BY kafka.topic, seqno, key ORDER BY kafka.offset) AS nth
  FROM one CROSS JOIN start WHERE kind = 'output' AND seqno > trimmed
),
b AS (
  SELECT kafka.topic AS topic, seqno, key, value,
    row_number() OVER (PARTITION BY kafka.topic, seqno, key ORDER BY kafka.offset) AS nth
  FROM other CROSS JOIN start WHERE kind = 'output' AND seqno > trimmed
)
SELECT coalesce(a.topic, b.topic) AS topic, coalesce(a.seqno, b.seqno) AS seqno, coalesce(a.key, b.key) AS key,
  CASE WHEN b.seqno IS NULL THEN 'only_in_one' WHEN a.seqno IS NULL THEN 'only_in_other' ELSE 'changed' END AS how,
  a.value AS one, b.value AS other
FROM a FULL JOIN b ON a.topic = b.topic AND a.seqno = b.seqno AND a.key <=> b.key AND a.nth = b.nth
WHERE a.seqno IS NULL OR b.seqno IS NULL OR NOT (a.value <=> b.value)
