-- In: `new_records`: rows of raw, with the text of those keys and values that are JSON, and what another format found
--     of the others or why it could not (zync.transactions.unpack).
-- Out: each record decoded: `key` and `value` as VARIANT, or `decode_error`, why it cannot be; and what a preset adds
--     (`more`). A preset may take placeholders out of the text that structs are parsed from (`clean_text`).
-- Trailing text, duplicate keys, bytes that are not UTF-8 and numbers that VARIANT cannot keep exactly are all errors.
-- (A key that is no JSON is the text that it is.)
WITH read AS (
  -- The parser stops after one JSON value. So the text's own hash follows it in an array: trailing text breaks the
  -- array, a ']' in it would close the array before, and behind another value the hash is not the second one.
  SELECT seqno, kafka, ingested, headers, key AS key_bytes, value AS value_bytes,
         key_text, value_text, key_found, value_found, key_error, value_error, unpacked,
    CASE WHEN value_found IS NULL AND is_valid_utf8(value_text)
         THEN try_parse_json('[' || value_text || ',' || xxhash64(value_text) || ']') END AS value_and_hash,
    CASE WHEN key_found IS NULL AND left(key_text, 1) IN ('{', '[') AND is_valid_utf8(key_text)
         THEN try_parse_json('[' || key_text || ',' || xxhash64(key_text) || ']') END AS key_and_hash
  FROM new_records
),
parsed AS (
  SELECT *,
    CASE WHEN value_found IS NOT NULL THEN value_found
         WHEN try_variant_get(value_and_hash, '$[1]', 'bigint') = xxhash64(value_text)
         THEN variant_get(value_and_hash, '$[0]', 'variant') END AS value,
    CASE WHEN key_found IS NOT NULL THEN key_found
         WHEN NOT is_valid_utf8(key_text) THEN to_variant_object(named_struct('base64', base64(key_bytes)))
         WHEN try_variant_get(key_and_hash, '$[1]', 'bigint') = xxhash64(key_text)
         THEN variant_get(key_and_hash, '$[0]', 'variant')
         ELSE CAST(key_text AS VARIANT) END AS key
  FROM read
)
SELECT seqno, kafka, kafka.topic AS topic, kafka.partition AS partition, kafka.offset AS offset,
       kafka.timestamp AS timestamp, ingested, headers, key, value, {{clean_text}} AS value_text,
  coalesce(
    CASE WHEN coalesce(key_error, value_error) IS NOT NULL THEN coalesce(key_error, value_error)
         WHEN value_bytes IS NULL OR value_found IS NOT NULL THEN NULL
         WHEN NOT is_valid_utf8(value_text) THEN 'value is not UTF-8'
         WHEN value IS NULL THEN 'value is not one JSON value'
         WHEN contains(schema_of_variant(value), 'DOUBLE') AND {{value_changed}}
           THEN 'value has a number that cannot be kept exactly'
    END,
    CASE WHEN key_found IS NULL AND left(key_text, 1) IN ('{', '[') AND key_text RLIKE '[0-9.]{39}|[0-9][eE]'
           AND contains(schema_of_variant(key), 'DOUBLE') AND {{key_changed}}
         THEN 'key has a number that cannot be kept exactly'
    END) AS decode_error{{more}}
FROM parsed
