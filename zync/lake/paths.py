"""Paths and URIs of tables."""

import os
from pathlib import Path
from urllib.parse import unquote, urlparse

from zync.lake import storage


def locate(table: str, lake: str) -> str:
    """Returns the location of a table: `<lake>/<name>` for a name; a text with `/` or a scheme is a path or URI.

    A local path is returned absolute and without a scheme, a URI unchanged, but that `az://` gets its account.
    """
    text = table if "/" in table or os.sep in table else f"{lake.rstrip('/')}/{table}"
    if text.startswith("file://"):
        text = unquote(urlparse(text).path)
    return storage.resolved(text.rstrip("/")) if "://" in text else str(Path(text).absolute())


def table_name(location: str) -> str:
    """Returns the last component of a table's path or URI, by which commands name it."""
    return location.rstrip("/").rpartition("/")[2]


def is_local(location: str) -> bool:
    """Returns whether the table is on a local file system, where locks and renames work."""
    return "://" not in location


def for_spark(location: str) -> str:
    """Returns a path or URI of `locate` or delta-rs in Spark's form: a local path is not percent-encoded."""
    path = locate(location, "")
    return path if "://" in path else f"file://{path}"
