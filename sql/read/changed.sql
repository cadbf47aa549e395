-- In: {{text}}, the text of JSON whose VARIANT has a DOUBLE: numbers of more than 38 digits, and those with an
--     exponent.
-- Out: whether such a number is another one now.
exists(
  regexp_extract_all(
    regexp_replace(regexp_replace({{text}}, '\\\\.', '_'), '"[^"]*"', '""'),
    '-?[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?', 0),
  n -> length(regexp_replace(n, '[eE].*|[-.]', '')) > CASE WHEN n RLIKE '[eE]' THEN 17 ELSE 38 END
    OR abs(try_cast(n AS DOUBLE)) = double('Infinity')
    OR (try_cast(n AS DOUBLE) = 0 AND n RLIKE '^-?[0.]*[1-9]'))
