"""Masks values that were read from the environment or a file in printed text, in every form of quoting."""

import json
import re
from collections.abc import Collection, Mapping

_MAX_PLAIN_LENGTH = 3
"""Texts of at most so many characters are not masked: they are no secrets, and would match everywhere."""


_SIGNATURE = re.compile(r"\b(sig=)[^&\s\"'<>]+")
"""The signature of a shared access signature, which delta-rs shows in the address of a request that failed."""


def masked(text: str, names: Mapping[str, str], exceptions: Collection[str | None] = ()) -> str:
    """Replaces values in a text by their names, and takes signatures out of addresses.

    Args:
        text: The text.
        names: The name of each value, like `${NAME}`.
        exceptions: Values that are not replaced.
    """
    for value in sorted(names.keys() - set(exceptions), key=len, reverse=True):
        for form in _forms(value):
            text = text.replace(form, names[value])
    return without_signatures(text)


def without_signatures(text: str) -> str:
    """Takes the signatures of Azure's shared access signatures out of the addresses in a text."""
    return _SIGNATURE.sub(r"\1…", text)


def _forms(value: str) -> list[str]:
    """Returns the forms in which an error may quote a value: unquoted, by Python, SQL or JSON, and line by line."""
    forms = {value, *value.splitlines()}
    for text in [*forms]:
        python = repr(f'"{text}')[2:-1]
        sql = text.replace("\\", "\\\\")
        forms |= {python, python.replace("\\'", "'"), sql, sql.replace("'", "\\'"), json.dumps(text)[1:-1]}
    return sorted((form for form in forms if len(form) > _MAX_PLAIN_LENGTH), key=len, reverse=True)
