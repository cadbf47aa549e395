"""Where a table is: names and URIs to locations."""

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
