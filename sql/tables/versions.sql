-- In: `changes`: versions of keys (sql/tables/history.sql), none of them deleted; the target table.
-- Out: the target with those it did not have, and with the ends of those it had, and what they had left out.
MERGE INTO delta.{{target}} AS t USING changes AS s ON t._seqno = s._seqno AND {{same_key}}
WHEN MATCHED AND NOT ({{same}}) THEN UPDATE SET {{updates}}
WHEN NOT MATCHED THEN INSERT ({{columns}}) VALUES ({{values}})
