-- In: `level`: rows of output (key, place) that had another key (old_key) before a place; `moved`: rows of this batch
--     that got another key, with the one that they had.
-- Out: the same, with the place from which on the old key was theirs (`after`), and what they had been until then
--     (`earlier`: key and place), null where that is not in this batch.
SELECT l.key, l.place, l.old_key, l.before, max_by(struct(m.old_key, m.place), m.place) AS earlier,
  coalesce(max(m.place), named_struct('position', -1L, 'seqno', -1L, 'offset', -1L)) AS after
FROM level l LEFT JOIN moved m ON m.key = l.old_key AND m.place < l.before
GROUP BY l.key, l.place, l.old_key, l.before
