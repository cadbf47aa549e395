-- In: `identified`, with `settled`, as sql/judge/aggregate.sql, of transactions with rows of several runs of their
--     connector, or that a run sent twice. Of each row of a table (which has a p0) its `run`, `total_order` and
--     `collection` (a number for its table, null for what the config does not count), whether it is `numbered` for
--     good, and what it has in `common` with all of its transaction, where that is known; of an END its `end_counts`:
--     the `count` of rows, and the `total` of their tables' numbers, null where it names no tables.
-- Out: as sql/judge/aggregate.sql, and `done`: with this record every END seen so far is satisfied, each either by one
--     run that has exactly the rows 1 to count, or by all runs' different rows; in both cases with its counts by table.
--     `clashing`: the row cannot be of the transaction that an earlier one of the same id is of.
WITH met AS (
  SELECT i.*, i.seqno - s.settled_at <= {{remember}} AS late, p0 IS NOT NULL AS is_row
  FROM identified i LEFT JOIN settled s ON i.txn = s.txn AND NOT i.alone
),
based AS (
  SELECT * EXCEPT (late),
    CASE WHEN alone THEN 'alone'
         WHEN decision IS NOT NULL THEN 'decision'
         WHEN late THEN 'late'
         ELSE 'txn' END AS base
  FROM met
),
-- What a run, known by name, sends with the same number twice is one row; and so is what is `numbered` for good. (Those
-- with the same number that differ otherwise are of two transactions: a database made anew has the same ids again.)
repeating AS (
  SELECT *, (numbered OR run NOT IN ('', 'any'))
    AND row_number() OVER (PARTITION BY txn, base, record_id, run, total_order ORDER BY seqno) > 1 AS repeated
  FROM based
),
-- Other equal rows of one run are all real; a run that sends them again sends as many: so the nth of a run is the nth
-- of any.
counted AS (
  SELECT *, count(CASE WHEN NOT repeated THEN 1 END) OVER (
      PARTITION BY txn, base, record_id, run ORDER BY seqno ROWS UNBOUNDED PRECEDING) AS nth
  FROM repeating
),
laned AS (
  SELECT *,
    CASE WHEN base = 'txn' AND is_row
          AND (repeated OR row_number() OVER (PARTITION BY txn, base, record_id, nth ORDER BY seqno) > 1)
         THEN 'duplicate' ELSE base END AS lane
  FROM counted
),
running AS (
  SELECT *,
    count(CASE WHEN NOT repeated THEN 1 END) OVER in_run AS run_count, max(total_order) OVER in_run AS run_last,
    sum(CASE WHEN NOT repeated THEN collection END) OVER in_run AS run_total,
    lead(seqno) OVER (PARTITION BY txn, base, is_row, run ORDER BY seqno) AS run_until,
    count(collection) OVER in_lane AS count, sum(collection) OVER in_lane AS total,
    lead(seqno) OVER (PARTITION BY txn, lane, is_row ORDER BY seqno) AS until,
    collect_list(end_counts) OVER whole AS ends,
    coalesce(first_value(common, true) OVER so_far <> common, false)
      OR numbered AND first_value(record_id) OVER of_number <> record_id AS clashing,
    -1L AS a2  -- so it is judged here, whatever comes of it
  FROM laned
  WINDOW whole AS (PARTITION BY txn, base),
         so_far AS (PARTITION BY txn, base ORDER BY seqno ROWS UNBOUNDED PRECEDING),
         of_number AS (PARTITION BY txn, base, is_row, total_order ORDER BY seqno ROWS UNBOUNDED PRECEDING),
         in_run AS (PARTITION BY txn, base, is_row, run ORDER BY seqno ROWS UNBOUNDED PRECEDING),
         in_lane AS (PARTITION BY txn, lane, is_row ORDER BY seqno ROWS UNBOUNDED PRECEDING)
),
-- From which record on, and up to which, an END of that count and total is satisfied.
satisfying AS (
  SELECT *,
    CASE WHEN is_row AND run_count = run_last
          AND exists(ends, e -> e.count = run_count AND (e.total IS NULL OR e.total <=> run_total))
         THEN named_struct('count', run_count, 'total', run_total, 'since', seqno, 'until', run_until) END AS by_run,
    CASE WHEN is_row AND lane = 'txn' AND exists(ends, e -> e.count = count AND (e.total IS NULL OR e.total <=> total))
         THEN named_struct('count', count, 'total', total, 'since', seqno, 'until', until) END AS by_rows
  FROM running
),
spans AS (
  SELECT *, concat(collect_list(by_run) OVER whole, collect_list(by_rows) OVER whole) AS spans
  FROM satisfying
  WINDOW whole AS (PARTITION BY txn, base)
),
-- The first END says where the commit is, also after an operator had what was there go out: then it is late.
unsatisfied AS (
  SELECT *, array_min(transform(ends, e -> e.seqno)) AS first_end,
    filter(ends, e -> e.seqno <= seqno AND e.count > 0 AND NOT exists(spans, s ->
      s.count = e.count AND (e.total IS NULL OR s.total <=> e.total)
      AND s.since <= seqno AND (s.until IS NULL OR seqno < s.until))) AS open
  FROM spans
)
SELECT * EXCEPT (base, repeated, nth, numbered, common, is_row, total_order, run, collection, end_counts, run_count,
                 run_last, run_total, run_until, count, total, until, by_run, by_rows, ends, first_end, spans, open),
  base = 'txn' AND exists(ends, e -> e.seqno <= seqno) AND size(open) = 0 AS done,
  CASE WHEN lane = 'duplicate' THEN lane
       WHEN begins OR end_counts.count = 0 THEN 'repeated_marker'
       WHEN base = 'txn' AND end_counts IS NOT NULL AND seqno <> first_end AND NOT exists(open, e -> e.seqno = seqno)
         THEN 'repeated_marker' END AS known,
  false AS multi_run, first_end AS end_seqno,
  lag(seqno) OVER (PARTITION BY txn, lane ORDER BY seqno) AS previous,
  lead(seqno) OVER (PARTITION BY txn, lane ORDER BY seqno) AS following
FROM unsatisfied
