-- In: `settling`: every record with its fate, and `gathered` ones; `set_aside`: transactions (by seqno) that go to
--     quarantine instead of out. Out: staging's bookkeeping rows: a row a transaction, and one for each late,
--     duplicate or faulty record.
WITH named AS (
  SELECT r.*, q.reason AS failed, q.rule AS failed_rule,
    CASE WHEN r.fate IN ('late', 'duplicate') THEN r.fate
         WHEN r.fate = 'pending' THEN 'pending'
         WHEN r.fault IS NOT NULL OR q.seqno IS NOT NULL THEN 'quarantined'
         ELSE 'done' END AS kind,
    CASE WHEN r.fate IN ('late', 'duplicate') THEN r.seqno WHEN r.fate <> 'pending' THEN r.completes_at END AS unit
  FROM settling r LEFT JOIN set_aside q ON r.completes_at = q.seqno
  WHERE NOT (r.fault <=> 'ignored') AND NOT (r.carried AND r.fate = 'whole')
    AND NOT (r.fate = 'duplicate' AND r.seqno <= {{head}})
),
grouped AS (
  SELECT kind, txn, unit,
    min(seqno) AS first,
    flatten(collect_list(earlier)) AS earlier,
    zip_with(array_sort(collect_list(CASE WHEN NOT carried AND (opens_range OR kind IN ('late', 'duplicate')) THEN seqno END)),
             array_sort(collect_list(CASE WHEN NOT carried AND (closes_range OR kind IN ('late', 'duplicate')) THEN seqno END)),
             (a, b) -> named_struct('first', a, 'last', b)) AS ranges,
    count_if(NOT carried) + coalesce(sum(earlier_count), 0) AS count,
    min_by(ingested, seqno) AS since,
    min_by(bad, seqno) FILTER (WHERE bad IS NOT NULL) AS bad,
    max_by(named_struct({{state}}), seqno) AS state,
    min(fault) AS fault, min(failed) AS failed, min(failed_rule) AS failed_rule,
    bool_or(alone) AS alone, bool_and(carried) AS untouched,
    min(CASE WHEN alone OR kind IN ('late', 'duplicate')
        THEN named_struct('topic', kafka.topic, 'partition', kafka.partition, 'offset', kafka.offset) END) AS place
  FROM named GROUP BY kind, txn, unit
)
SELECT CASE WHEN kind = 'pending' AND since <= {{expired}} THEN 'expired' ELSE kind END AS kind,
  coalesce(unit, first) AS seqno, place AS kafka,
  CASE WHEN NOT alone THEN txn END AS txn,
  concat(earlier, ranges) AS records, count,
  CASE WHEN kind = 'pending' THEN since END AS since,
  CASE WHEN kind = 'pending' THEN to_json(state, map('ignoreNullFields', 'false', 'timestampFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")) END AS state,
  CASE kind WHEN 'late' THEN 'its transaction was settled already'
            WHEN 'duplicate' THEN 'its record id came before'
            ELSE coalesce(fault, failed, bad) END AS reason,
  failed_rule AS rule
FROM grouped WHERE NOT untouched
