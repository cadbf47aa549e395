"""Reads values of librdkafka's properties that zync itself uses."""

import re
from collections.abc import Mapping

from zync.errors import UsageError

_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")


def milliseconds(properties: Mapping[str, str], name: str, default: int) -> int:
    """Returns a property's whole number of milliseconds, or `default` if it is not set.

    librdkafka uses C's strtol, which reads `30 seconds` as 30, `1e5` as 1 and `010` as 8 without an error.

    Raises:
        UsageError: The text is no whole number.
    """
    text = properties.get(name, str(default))
    if not _WHOLE.fullmatch(text):
        msg = f"kafka in the config: {name} is a whole number of milliseconds, not {text!r}"
        raise UsageError(msg)
    return int(text)
