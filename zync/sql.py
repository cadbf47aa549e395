"""Reads SQL statements from files, and quotes literals and names for them."""

import re
from functools import lru_cache

from zync.resources import data_folder


@lru_cache
def _text(name: str) -> str:
    return (data_folder("sql") / f"{name}.sql").read_text()


def statement(name: str, **slots: str) -> str:
    """Returns the SQL of `sql/<name>.sql` with its `{{slots}}` filled.

    Args:
        name: The file's path below `sql`, without `.sql`.
        **slots: The SQL of each slot: a checked expression of the user, or zync's own SQL.
    """
    # In a single pass: braces in a slot's text stay.
    return re.sub(r"\{\{(\w+)\}\}", lambda slot: slots[slot[1]], _text(name))


def literal(text: str) -> str:
    """Quotes a text as a SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def options(pairs: dict[str, str]) -> str:
    """Returns the pairs as a SQL map of strings, the form of a function's options."""
    return f"map({', '.join(literal(text) for pair in pairs.items() for text in pair)})"


def name(text: str) -> str:
    """Quotes a text as a SQL identifier."""
    return "`" + text.replace("`", "``") + "`"


def aliased(columns: dict[str, str]) -> list[str]:
    """Returns a select list.

    Args:
        columns: The SQL expression of each column, by the column's name.
    """
    return [f"{value} AS {name(column)}" for column, value in columns.items()]
