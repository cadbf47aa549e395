-- In: `changes`: one row a key (sql/tables/newest.sql) with the target's columns, and `_deleted`.
-- Out: the target with those of them that are newer, in the source's order, than what it has; and of those that are
--     not, what newer ones had left out. Without what a truncation took (`truncated`).
MERGE INTO delta.{{target}} AS t USING changes AS s ON {{same_key}}
WHEN MATCHED AND _deleted AND {{newer}} THEN DELETE
WHEN MATCHED AND {{matched}} THEN UPDATE SET {{updates}}
WHEN NOT MATCHED AND NOT _deleted THEN INSERT ({{columns}}) VALUES ({{values}})
{{truncated}}
