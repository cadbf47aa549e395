-- In: `aggregated`, with `done`: whether the transaction is done with that row; `known`: what the row is should its
--     transaction be settled already and the row say nothing new of it (duplicate, repeated_marker), or null;
--     `multi_run`: the transaction has rows of several runs up to there, so sql/judge/runs.sql decides; `end_seqno`:
--     the seqno of its first END, by which it stands in the order of commit, where that counts and is known by then.
-- Out: every row with its fate: whole (its transaction is settled, as that of seqno `completes_at`, by itself or by a
--     decision), pending, late, duplicate, repeated_marker (a BEGIN or END of what was settled before), alone (a
--     transaction or a bad record by itself), decision (it settles its transaction) or no_effect (there was none in
--     flight), or reassemble: later than its id is remembered, so the first of a new transaction of that id.
--     `in_flight`, of a decision: its id is in flight.
WITH begun AS (
  SELECT * EXCEPT (end_seqno), {{began}} AS began,
    {{end_seqno}} AS end_seqno
  FROM aggregated
),
ended AS (
  SELECT *,
    min(CASE WHEN done OR (lane = 'decision' AND decision.action IN ('release', 'discard') AND seqno > began)
             THEN seqno END) OVER (PARTITION BY txn) AS settled_at
  FROM begun
),
ordered AS (
  SELECT * EXCEPT (end_seqno),
    CASE WHEN end_seqno <= settled_at THEN end_seqno ELSE settled_at END AS settled_as, end_seqno
  FROM ended
)
SELECT * EXCEPT (lane, done, previous, following, began),
  seqno > began AND (settled_at IS NULL OR seqno < settled_at) AS in_flight,
  CASE WHEN lane = 'alone' THEN seqno WHEN lane = 'txn' AND seqno <= settled_at THEN settled_as END AS completes_at,
  CASE WHEN lane = 'late' AND known = 'repeated_marker' THEN known
       WHEN lane IN ('alone', 'late') THEN lane
       WHEN seqno > settled_at AND seqno > settled_as + {{remember}} THEN 'reassemble'
       WHEN lane = 'decision' THEN CASE WHEN seqno = settled_at THEN 'decision' ELSE 'no_effect' END
       WHEN seqno > settled_at THEN coalesce(known, 'late')
       WHEN lane = 'duplicate' THEN lane
       WHEN settled_at IS NOT NULL THEN 'whole'
       ELSE 'pending' END AS fate,
  seqno = settled_at OR lane = 'alone' AS completing,
  previous IS NULL OR previous <> seqno - 1 AS opens_range,
  following IS NULL OR following <> seqno + 1 OR seqno = settled_at AS closes_range
FROM ordered
