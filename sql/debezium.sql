-- In: `identified`, with `settled`, as sql/aggregate.sql. Of each row of a table: `rows` (1), its connector's `run`,
--     `total_order`, and `collection` (a number for its table); of an END, `ends`: the `count` of rows that it says, and
--     the `total` of their tables' numbers. A transaction `carried` has them of all its rows, which are of one run.
-- Out: as sql/aggregate.sql, and `done`: with this record every END seen so far is satisfied, each either by one run
--     that has exactly the rows 1 to count, or by all runs' different rows; in both cases with its counts by table.
--     `torn`: rows of another run have come, so that the carried transaction's own are needed one by one.
WITH met AS (
  SELECT i.*, i.seqno - s.settled_at <= {{remember}} AS late, rows IS NOT NULL AS is_row
  FROM (SELECT * FROM identified DISTRIBUTE BY txn) i LEFT JOIN settled s ON i.txn = s.txn AND NOT i.alone
),
based AS (
  SELECT * EXCEPT (late),
    CASE WHEN alone THEN 'alone'
         WHEN decision IS NOT NULL THEN 'decision'
         WHEN late THEN 'late'
         ELSE 'txn' END AS base
  FROM met
),
-- Equal rows of one run are all real; a run that sends them again sends as many: so the nth of a run is the nth of any.
counted AS (
  SELECT *, row_number() OVER (PARTITION BY txn, base, record_id, run ORDER BY seqno) AS nth FROM based
),
laned AS (
  SELECT *,
    CASE WHEN base = 'txn' AND is_row AND NOT carried
          AND row_number() OVER (PARTITION BY txn, base, record_id, nth ORDER BY seqno) > 1
         THEN 'duplicate' ELSE base END AS lane
  FROM counted
),
running AS (
  SELECT *,
    sum(rows) OVER in_run AS run_count, max(total_order) OVER in_run AS run_last, sum(collection) OVER in_run AS run_total,
    lead(seqno) OVER (PARTITION BY txn, base, is_row, run ORDER BY seqno) AS run_until,
    sum(rows) OVER in_lane AS count, sum(collection) OVER in_lane AS total,
    lead(seqno) OVER (PARTITION BY txn, lane, is_row ORDER BY seqno) AS until,
    flatten(collect_list(ends) OVER whole) AS all_ends,
    carried AND is_row AND (min(CASE WHEN is_row THEN run END) OVER whole <> max(CASE WHEN is_row THEN run END) OVER whole)
      AS torn
  FROM laned
  WINDOW whole AS (PARTITION BY txn, base),
         in_run AS (PARTITION BY txn, base, is_row, run ORDER BY seqno ROWS UNBOUNDED PRECEDING),
         in_lane AS (PARTITION BY txn, lane, is_row ORDER BY seqno ROWS UNBOUNDED PRECEDING)
),
-- From which record on, and up to which, an END of that count and total is satisfied.
satisfying AS (
  SELECT *,
    CASE WHEN is_row AND run_count = run_last AND exists(all_ends, e -> e.count = run_count AND e.total = run_total)
         THEN named_struct('count', run_count, 'total', run_total, 'since', seqno, 'until', run_until) END AS by_run,
    CASE WHEN is_row AND lane = 'txn' AND exists(all_ends, e -> e.count = count AND e.total = total)
         THEN named_struct('count', count, 'total', total, 'since', seqno, 'until', until) END AS by_rows
  FROM running
),
spans AS (
  SELECT *, concat(collect_list(by_run) OVER whole, collect_list(by_rows) OVER whole) AS spans
  FROM satisfying
  WINDOW whole AS (PARTITION BY txn, base)
),
unsatisfied AS (
  SELECT *,
    filter(all_ends, e -> e.seqno <= seqno AND e.count > 0 AND NOT exists(spans, s ->
      s.count = e.count AND s.total = e.total AND s.since <= seqno AND (s.until IS NULL OR seqno < s.until))) AS open
  FROM spans
)
SELECT * EXCEPT (base, nth, is_row, run_count, run_last, run_total, run_until, count, total, until, by_run, by_rows,
                 all_ends, spans, open),
  base = 'txn' AND NOT carried AND (ends IS NOT NULL OR by_run IS NOT NULL OR by_rows IS NOT NULL)
    AND exists(all_ends, e -> e.seqno <= seqno) AND size(open) = 0 AS done,
  CASE WHEN lane = 'duplicate' THEN lane
       WHEN begins OR get(ends, 0).count = 0 THEN 'said'
       WHEN base = 'txn' AND ends IS NOT NULL AND NOT exists(open, e -> e.seqno = seqno) THEN 'said' END AS known,
  lag(CASE WHEN NOT carried THEN seqno END) OVER (PARTITION BY txn, lane ORDER BY seqno) AS previous,
  lead(seqno) OVER (PARTITION BY txn, lane ORDER BY seqno) AS following
FROM unsatisfied
