"""Names tables and topics as OpenLineage's naming conventions do, so that lineage of other systems meets them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pyarrow as pa

_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss"}
"""The schemes of the conventions, for those that mean the same."""
_KAFKA_PORT = "9092"

Columns = tuple[tuple[str, str], ...]
"""Names and types."""


@dataclass(frozen=True)
class Dataset:
    """A table or a topic.

    Attributes:
        namespace: Where it is, like `s3://bucket` or `kafka://host:9092`.
        name: Its path or name there.
        columns: Its columns; none: they are not known.
    """

    namespace: str
    name: str
    columns: Columns = field(default=(), compare=False)


def columns_of(schema: pa.Schema) -> Columns:
    """Returns the columns of a table."""
    return tuple((column.name, str(column.type)) for column in schema)


def table(location: str, columns: Columns = ()) -> Dataset:
    """Names the table at a location of `zync.lake.paths.locate`."""
    if "://" not in location:
        return Dataset("file", location, columns)
    parts = urlsplit(location)
    return Dataset(f"{_SCHEMES.get(parts.scheme, parts.scheme)}://{parts.netloc}", parts.path.lstrip("/"), columns)


def topics(servers: str | None, names: Iterable[str]) -> list[Dataset]:
    """Names topics of the Kafka at `bootstrap.servers`, by the first of its servers; none without a server."""
    first = (servers or "").split(",")[0].strip().rpartition("://")[2]
    if not first:
        return []
    host, _, port = first.rpartition(":")
    address = first if host and port.isdecimal() else f"{first}:{_KAFKA_PORT}"
    return [Dataset(f"kafka://{address}", name) for name in names]
