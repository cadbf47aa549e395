"""Keeps what was read from the environment or a file out of what is printed, in whatever way it is quoted there."""

import json
from collections.abc import Collection, Mapping

_NO_SECRET = 3
"""Texts of so many letters or less are no secrets, and would be all over what is printed."""


def masked(text: str, names: Mapping[str, str], but: Collection[str | None] = ()) -> str:
    """`text` with each value that is a key of `names` as its name; of values in `but`, as they are."""
    for value in sorted(names.keys() - set(but), key=len, reverse=True):
        for form in _forms(value):
            text = text.replace(form, names[value])
    return text


def _forms(value: str) -> list[str]:
    """How a value may stand in an error: as it is, as Python, SQL or JSON quote it, and line by line."""
    found = {value, *value.splitlines()}
    for one in [*found]:
        python = repr(f'"{one}')[2:-1]
        sql = one.replace("\\", "\\\\")
        found |= {python, python.replace("\\'", "'"), sql, sql.replace("'", "\\'"), json.dumps(one)[1:-1]}
    return sorted((one for one in found if len(one) > _NO_SECRET), key=len, reverse=True)
