-- In: `moves`: rows that an update gave another key (key, place) and each key that they had before that (old_key), from
--     the place `after` on until `before`; `arrived`: rows of the output topic; `old_rows`: the target's rows of
--     the keys that they had.
-- Out: of each such row what it was before, as a row of its new key just before it: of each column the newest value
--     that was not left out. `unresolved`: the columns of which there is none here.
WITH candidates AS (
  SELECT m.key, m.place AS at, a.v, a.left_out, a.place, CAST(NULL AS {{noted}}) AS origin
  FROM moves m JOIN arrived a ON a.key = m.old_key AND a.place < m.before AND a.place >= m.after
  WHERE NOT a.deleted
  UNION ALL
  SELECT m.key, m.place, {{row}}, CAST(NULL AS ARRAY<STRING>),
    named_struct('position', _position, 'seqno', _seqno, 'offset', 0L), _left_out
  FROM moves m JOIN old_rows o ON o._key = m.old_key
    AND named_struct('position', _position, 'seqno', _seqno, 'offset', 0L) < m.before
    AND named_struct('position', _position, 'seqno', _seqno, 'offset', 9223372036854775807L) >= m.after
),
newest AS (
  SELECT moved_key, moved_place{{known}}
  FROM (SELECT DISTINCT key AS moved_key, place AS moved_place FROM moves)
    LEFT JOIN candidates ON key = moved_key AND at = moved_place
  GROUP BY moved_key, moved_place
)
SELECT moved_key AS key, CAST({{values}} AS {{type}}) AS v, CAST(NULL AS {{key_type}}) AS k, false AS deleted,
  named_struct('position', moved_place.position, 'seqno', moved_place.seqno, 'offset', moved_place.offset - 1) AS place,
  {{unresolved}} AS unresolved
FROM newest
