-- In: `staged`: staging's rows of one output topic that a table does not have yet.
-- Out: the same, also with key and value as structs of the rule's types, and where each is in the source's order.
--     `left_out`: the columns that the connector left out; `old_key`: the key that such a row had before.
--     (What is in a key is in the value, too, where there is one, and not parsed twice.)
SELECT key, value, from_json(value, {{value_type}}, {{options}}) AS v,
  CASE WHEN value IS NULL THEN from_json(key, {{key_type}}, {{options}}) END AS k,
  value IS NULL AS deleted, {{state}}.left_out AS left_out, {{state}}.old_key AS old_key,
  named_struct('position', coalesce(position, 0L), 'seqno', seqno, 'offset', kafka.offset) AS place
FROM staged
