"""What a catalog has of delivered tables, and what every catalog can do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampNTZType, VariantType

from zync.config.catalog import CatalogName
from zync.errors import ZyncError
from zync.lake.paths import locate

TOPIC = "zync.topic"
"""The property of a view, and of a table in Glue, that names its output topic."""


class CatalogError(ZyncError):
    """A catalog does not answer, or refuses to register a delivered table.

    The message names it, and why. No row is missing in the tables: only their entries in the catalog are as they were.
    A delivery that goes on tries again each minute. One that ends when all is delivered ends with this error: mend what
    the message says, and run the command again.
    """

    code = "ZYNC-CATALOG"


class NameTakenError(CatalogError):
    """A name in a catalog belongs to a table or view that is not zync's.

    It was not touched. Drop it in the catalog, or name the delivered tables by another pattern
    (`deliver.tables.catalog`).
    """

    code = "ZYNC-CATALOG-NAME"


@dataclass(frozen=True)
class Entry:
    """A delivered table, as a catalog has it.

    Attributes:
        topic: The output topic.
        name: The name in the catalog.
        location: The location of the table.
        columns: The columns of the table, with their comments.
    """

    topic: str
    name: CatalogName
    location: str
    columns: StructType


@dataclass(frozen=True)
class View:
    """A view of a registered table at a version.

    Attributes:
        topic: The output topic.
        name: The name of the view in the catalog.
        table: The name of the table.
        version: The table's version.
    """

    topic: str
    name: CatalogName
    table: CatalogName
    version: int


class CatalogClient(Protocol):
    """A catalog. Each method raises CatalogError if the catalog fails, NameTakenError if a name is somebody else's."""

    def register(self, entry: Entry) -> None:
        """Registers the table, or changes its columns if the catalog has other columns."""

    def replace_views(self, views: Sequence[View]) -> None:
        """Creates the views, or changes the versions that they read, one view after the other."""


def hive_type(kind: DataType) -> str:
    """Returns the name of a type in Hive, which has no VARIANT and one kind of timestamp."""
    if isinstance(kind, ArrayType):
        return f"array<{hive_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{hive_type(kind.keyType)},{hive_type(kind.valueType)}>"
    if isinstance(kind, StructType):
        return f"struct<{','.join(f'{field.name}:{hive_type(field.dataType)}' for field in kind.fields)}>"
    if isinstance(kind, TimestampNTZType):
        return "timestamp"
    return "string" if isinstance(kind, VariantType) else kind.simpleString()


def taken(name: CatalogName, kind: str, wanted: str) -> NameTakenError:
    """Returns the error of a name that something else has. `kind`: what that is; `wanted`: what should have it."""
    return NameTakenError(
        f"{name} in the catalog is {kind}, and not {wanted}: drop it, or name delivered tables by another pattern "
        "(deliver.tables.catalog)"
    )


def same_location(registered: str, location: str) -> bool:
    """Returns whether a catalog's location, which may have `s3a` for `s3` and `%20` for a space, is that of a table."""
    plain = _plain(registered)
    return _plain(location) in (plain, unquote(plain))


def _plain(location: str) -> str:
    if location.startswith("file:") and not location.startswith("file://"):
        location = f"file://{location.removeprefix('file:')}"
    return locate(location.replace("s3a://", "s3://", 1), "")
