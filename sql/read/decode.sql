-- In: `new_records`: rows of raw, with the text of those keys and values that are JSON, and what another format found
--     of the others or why it could not (zync.transactions.unpack). zync_json parses texts (zync/StrictJson.java).
--     `typed`: it parses the values of topics with a schema to columns of their own, each by that schema.
-- Out: each record decoded: `key` and `value` as VARIANT, or `decode_error`, why it cannot be; and what a preset adds
--     (`more`).
-- A key that is no JSON is the text that it is.
WITH typed AS (
  SELECT *{{typed}}
  FROM new_records
),
parsed AS (
  SELECT seqno, kafka, ingested, headers, key AS key_bytes, value AS value_bytes,
         key_text, value_text, key_found, value_found, key_error, value_error, unpacked,
    {{value_json}} AS value_json,
    CASE WHEN left(key_text, 1) IN ('{', '[') THEN zync_json(CAST(key_text AS BINARY)) END AS key_json{{typed_columns}}
  FROM typed
),
decoded AS (
  SELECT *,
    coalesce(value_found, value_json.value) AS value,
    CASE WHEN key_found IS NOT NULL THEN key_found
         WHEN NOT is_valid_utf8(key_text) THEN to_variant_object(named_struct('base64', base64(key_bytes)))
         ELSE coalesce(key_json.value, CAST(key_text AS VARIANT)) END AS key
  FROM parsed
)
SELECT seqno, kafka, kafka.topic AS topic, kafka.partition AS partition, kafka.offset AS offset,
       kafka.timestamp AS timestamp, ingested, headers, key, value, value_text,
       value_json.decimals AS decimals, value_json.odd_time AS odd_time,
  coalesce(
    key_error, value_error,
    CASE WHEN value_bytes IS NOT NULL AND value_found IS NULL
         THEN 'value ' || CASE WHEN value IS NULL THEN coalesce(value_json.error, 'is not one JSON value')
                               ELSE value_json.error END END,
    CASE WHEN key_json.value IS NOT NULL THEN 'key ' || key_json.error END) AS decode_error{{typed_columns}}{{more}}
FROM decoded
