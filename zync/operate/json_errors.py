"""Explains why a value is not JSON, with the place and the cause, which Spark's parser does not tell."""

import json
from typing import Any, NoReturn

REASONS = ("value is not one JSON value", "value is not UTF-8")
"""The reasons of set-aside records (sql/read/decode.sql) that `why_no_json` can explain further."""
_FRAME_SIZE = 5
"""Bytes of the header that clients of a schema registry put before the value; the first byte is zero."""


def why_no_json(value: bytes) -> str | None:
    """Returns the cause for which the bytes are not a JSON value; None where Python's parser accepts them."""
    try:
        text = value[_FRAME_SIZE if value[:1] == b"\0" else 0 :].decode()
        json.loads(text, object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_constant)
    except UnicodeDecodeError as error:
        return f"byte {error.start} ({error.object[error.start]:#04x}) is not UTF-8"
    except RecursionError:
        return "it is nested too deep"
    except ValueError as error:
        return str(error)
    return None


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            msg = f"the key {json.dumps(key)} is there twice"
            raise ValueError(msg)
        values[key] = value
    return values


def _reject_constant(text: str) -> NoReturn:
    """Rejects NaN and Infinity, which Python's parser takes and JSON does not have."""
    msg = f"{text} is no number in JSON"
    raise ValueError(msg)
