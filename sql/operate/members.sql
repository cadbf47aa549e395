-- In: `staging`. Out: the records of transactions that are settled, each with its transaction's seqno.
SELECT seqno AS settled_at, explode(sequence(range.first, range.last)) AS member
FROM (
  SELECT seqno, explode(records) AS range FROM staging WHERE kind IN ({{settled_kinds}})
)
