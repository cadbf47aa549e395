-- In: `arrived`: rows of one output topic; `tombstones`: what was deleted before, and where in the source's order.
-- Out: one row a key, the newest by the source's order, if nothing that was deleted since is newer. (As new is what
--     this very row deleted: who was killed then had put that on record, and not yet done it.)
--     (A column that Debezium left out, as it had not changed, has the value that it had before.)
-- What is newest is found as text: that is less to sort than what is in it, and less has to be parsed. Keys as text
-- begin alike, so they are sorted by their hashes first; once, as they are brought together before that.
WITH hashed AS (SELECT *, xxhash64(key) AS hash FROM arrived DISTRIBUTE BY hash),
by_key AS (
  SELECT key, max_by(struct(value, left_out, place), place) AS newest, count(*) AS arrivals
    {{known}}
  FROM hashed GROUP BY hash, key
),
newest AS (
  SELECT key, CASE WHEN newest.value IS NULL THEN from_json(key, {{key_type}}, {{options}}) END AS k,
    from_json(newest.value, {{value_type}}, {{options}}) AS v,
    newest.value IS NULL AS deleted, newest.left_out, newest.place, * EXCEPT (key, newest)
  FROM by_key
),
gone AS (SELECT key, max(place) AS place FROM tombstones GROUP BY key)
SELECT newest.*
FROM newest LEFT JOIN gone ON newest.key = gone.key
WHERE gone.place IS NULL
   OR gone.place <= named_struct('position', newest.place.position, 'seqno', newest.place.seqno)
