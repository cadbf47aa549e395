-- In: `arrived`: rows of one output topic; `tombstones`: what was deleted before; `kept`: the target's rows of the
--     keys that arrived.
-- Out: all versions of those keys, one a transaction, each with where the next one begins.
--     (`_missing`: the columns that Debezium left out, as they had not changed: they are as in the version before.)
WITH changed AS (
  SELECT max_by(k, place) AS k, max_by(v, place) AS v, max_by(deleted, place) AS deleted,
    max_by(left_out, place) AS left_out, max(place) AS place
    {{known}}
  FROM arrived GROUP BY key, place.seqno
),
changes_of_keys AS (
  SELECT {{changed}}, {{missing}} AS _missing, deleted AS _deleted, place.position AS _position, place.seqno AS _seqno
  FROM changed
  UNION ALL
  SELECT {{kept}}, coalesce({{missing_before}}, array()), false, _position, _seqno FROM kept
  UNION ALL
  SELECT {{tombstones}}, array(), true, place.position, place.seqno
  FROM tombstones WHERE {{of_keys}}
),
-- A truncation deletes each key; what is of the same transaction comes after it (what was before it is left out).
versions AS (
  SELECT * FROM changes_of_keys {{truncated}}
)
SELECT {{filled}}, _deleted, _position, _seqno,
  {{from}} AS valid_from, lead({{from}}) OVER later AS valid_to, lead(true) OVER later IS NULL AS current
FROM versions
WINDOW later AS (PARTITION BY {{key}} ORDER BY _position, _seqno, NOT _deleted)
