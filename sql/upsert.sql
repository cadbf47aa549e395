-- In: `changes`: one row a key (sql/newest.sql) with the target's columns, and `_deleted`.
-- Out: the target with those of them that are newer, in the source's order, than what it has.
MERGE INTO delta.{{target}} AS t USING changes AS s ON {{same_key}}
WHEN MATCHED AND _deleted AND {{newer}} THEN DELETE
WHEN MATCHED AND {{newer}} THEN UPDATE SET {{set}}
WHEN NOT MATCHED AND NOT _deleted THEN INSERT ({{columns}}) VALUES ({{values}})
