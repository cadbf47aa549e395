"""How rows become JSON text."""

from collections.abc import Sequence

from zync.sql import options

JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How rows become JSON text: nulls kept, timestamps to the microsecond."""


def as_json(fields: Sequence[str]) -> str:
    """The SQL expression of a JSON object with those fields (SQL, named), in that order."""
    return f"to_json(struct({', '.join(fields)}), {options(JSON_OPTIONS)})"
