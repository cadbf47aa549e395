"""Explains why a value is not JSON, with the place and the cause, which Spark's parser does not tell."""

from zync.text import strict_json

REASONS = ("value is not one JSON value", "value is not UTF-8")
"""The reasons of set-aside records (sql/read/decode.sql) that `why_no_json` can explain further."""
_FRAME_SIZE = 5
"""Bytes of the header that clients of a schema registry put before the value; the first byte is zero."""


def why_no_json(value: bytes) -> str | None:
    """Returns the cause for which the bytes are not a JSON value; None where Python's parser accepts them."""
    try:
        text = value[_FRAME_SIZE if value[:1] == b"\0" else 0 :].decode()
        strict_json(text)
    except UnicodeDecodeError as error:
        return f"byte {error.start} ({error.object[error.start]:#04x}) is not UTF-8"
    except ValueError as error:
        return str(error)
    return None
