"""Why a value is not JSON: the place and the cause, which Spark's parser does not say."""

import json
from typing import Any, NoReturn

REASONS = ("value is not one JSON value", "value is not UTF-8")
"""Why a record was set aside (sql/decode/decode.sql), where this can tell more."""
_FRAME = 5
"""How many bytes a schema registry's clients put in front, of which the first is zero."""


def why_no_json(value: bytes) -> str | None:
    """What keeps the bytes from being one JSON value; None where Python's parser sees nothing wrong with them."""
    try:
        text = value[_FRAME if value[:1] == b"\0" else 0 :].decode()
        json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        return f"byte {error.start} ({error.object[error.start]:#04x}) is not UTF-8"
    except RecursionError:
        return "it is nested too deep"
    except ValueError as error:
        return str(error)
    return None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, its in pairs:
        if key in found:
            msg = f"the key {json.dumps(key)} is there twice"
            raise ValueError(msg)
        found[key] = its
    return found


def _no_number(text: str) -> NoReturn:
    msg = f"{text} is no number in JSON"
    raise ValueError(msg)
