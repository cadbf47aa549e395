"""Where things are: tables by their names and URIs, and the files that come with the package."""

import os
from pathlib import Path
from urllib.parse import unquote, urlparse


def locate(table: str, lake: str) -> str:
    """Where the table of that name is: `<lake>/<name>`; a value with `/` or a scheme is a path or URI itself.

    Local paths come back absolute and without a scheme, others as the URI they are.
    """
    text = table if "/" in table or os.sep in table else f"{lake.rstrip('/')}/{table}"
    if text.startswith("file://"):
        text = unquote(urlparse(text).path)
    return text.rstrip("/") if "://" in text else str(Path(text).absolute())


def table_name(location: str) -> str:
    """The last part of a table's path or URI, by which commands name it."""
    return location.rstrip("/").rpartition("/")[2]


def is_local(location: str) -> bool:
    """Whether the table is on this machine's file system, where locks and renames mean something."""
    return "://" not in location


def for_spark(location: str) -> str:
    """What `locate` or delta-rs gives, as Spark takes it: a local path as it is, not with its odd letters as %20."""
    here = locate(location, "")
    return here if "://" in here else f"file://{here}"
