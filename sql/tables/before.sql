-- In: `staged`, as sql/tables/positioned.sql; `target`: the table; `tombstones`: what was deleted before.
-- Out: of the keys of rows without a position where the table has, or had, rows of them.
WITH wanted AS (
  SELECT key, from_json(key, {{key_type}}, {{options}}) AS k FROM staged WHERE position IS NULL GROUP BY key
)
SELECT key, t._position AS position, t._seqno AS seqno FROM target t JOIN wanted ON {{same_key}}
UNION ALL
SELECT key, place.position, place.seqno FROM tombstones WHERE key IN (SELECT key FROM wanted)
