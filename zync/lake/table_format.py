"""The format of the tables that zync makes for itself, as a table property that every opening of a table checks.

The property is in the `metaData` action, which every reader of a Delta table has read: the check costs no request.
Tables that others make, and delivered tables, do not have it.
"""

from importlib.metadata import version

from deltalake import DeltaTable

from zync.errors import FormatError
from zync.lake.paths import locate

FORMATS = {1: "0.8.0"}
"""The formats that this zync knows, each with the first zync that does. docs/compatibility.md says what each adds."""
FORMAT = "zync.format"
"""The property with a table's format; a table without it has format 1."""
SINCE = "zync.format_since"
"""The property with the first zync that knows the table's format, for the message of one that does not."""


def format_properties() -> dict[str, str]:
    """Returns the properties of a new table, which has the newest format."""
    newest = max(FORMATS)
    return {FORMAT: str(newest), SINCE: FORMATS[newest]}


def check_format(table: DeltaTable) -> None:
    """Checks that this zync knows the format of a table.

    Raises:
        FormatError: It does not: a newer zync made the table, or changed its format.
    """
    properties = table.metadata().configuration
    table_format = properties.get(FORMAT, "1")
    if table_format in map(str, FORMATS):
        return
    known = "format 1" if len(FORMATS) == 1 else f"formats 1 to {max(FORMATS)}"
    since = properties.get(SINCE)
    wanted = f"zync {since} or newer" if since else "a newer zync"
    msg = (
        f"{locate(table.table_uri, '')} has format {table_format}, and zync {version('zync')} knows {known}: "
        f"install {wanted}"
    )
    raise FormatError(msg)
