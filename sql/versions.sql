-- In: `changes`: versions of keys (sql/history.sql), none of them deleted; the target table.
-- Out: the target with those it did not have, and with the ends of those it had.
MERGE INTO delta.{{target}} AS t USING changes AS s ON t._seqno = s._seqno AND {{same_key}}
WHEN MATCHED AND NOT t.valid_to <=> s.valid_to THEN UPDATE SET t.valid_to = s.valid_to, t.current = s.current
WHEN NOT MATCHED THEN INSERT ({{columns}}) VALUES ({{values}})
