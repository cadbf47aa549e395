"""Turns rows into JSON text."""

from collections.abc import Sequence

from zync.sql import options

JSON_OPTIONS = {
    "columnNameOfCorruptRecord": "=",
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark's JSON options: keep nulls, write timestamps to the microsecond, and read a field `_corrupt_record` as any."""


def as_json(fields: Sequence[str]) -> str:
    """Returns the SQL expression of a JSON object with those fields, in that order.

    Args:
        fields: SQL expressions with their names, as in `id AS id`.
    """
    return f"to_json(struct({', '.join(fields)}), {options(JSON_OPTIONS)})"
