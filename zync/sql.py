"""SQL statements from files, and what may enter them: checked expressions, literals, names."""

import re
from functools import lru_cache

from zync.resources import data_folder


@lru_cache
def _text(name: str) -> str:
    return (data_folder("sql") / f"{name}.sql").read_text()


def statement(name: str, **slots: str) -> str:
    """The SQL of `sql/<name>.sql`, its `{{slots}}` filled with checked expressions or zync's own."""
    return re.sub(r"\{\{(\w+)\}\}", lambda slot: slots[slot[1]], _text(name))  # at once: a slot in a slot is text


def literal(text: str) -> str:
    """`text` as a SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def options(pairs: dict[str, str]) -> str:
    """A SQL map of those string pairs, as functions take their options."""
    return f"map({', '.join(literal(text) for pair in pairs.items() for text in pair)})"


def name(text: str) -> str:
    """`text` as a quoted SQL identifier."""
    return "`" + text.replace("`", "``") + "`"


def aliased(columns: dict[str, str]) -> list[str]:
    """What to select so that columns of those names have those values."""
    return [f"{value} AS {name(column)}" for column, value in columns.items()]
