"""`zync cat`: prints rows of raw or staging as JSON Lines, without starting Spark."""

import base64
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from zync.errors import UsageError
from zync.lake.files import data_files, dataset
from zync.lake.paths import table_name
from zync.lake.table import open_table
from zync.raw.table import RAW_SCHEMA
from zync.staging.kinds import KINDS
from zync.staging.table import STAGING_SCHEMA
from zync.text import Verbatim, strict_json

_CREATE_HINTS = {"raw": "`zync sync-from kafka raw` makes it", "staging": "`zync sync raw staging` makes it"}


def cat(
    location: str, *, kind: str | None = None, topic: str | None = None, since: int = 0, limit: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yields the table's rows in order of seqno, topic and offset.

    Keys and values come as JSON where their text is a JSON object or array, as a string where it is other UTF-8, as
    {"base64": …} otherwise, and where they are such an object themselves. Staging's rows come without the columns that
    their kind does not use.

    Args:
        location: raw or staging.
        kind: only rows of this kind, for staging.
        topic: only rows of this topic.
        since: the first seqno.
        limit: at most this many rows.

    Raises:
        UsageError: the table does not exist, or `kind` is unknown or given for raw.

    Example:
        >>> for row in zync.cat("lake/staging", kind="output", limit=1):
        ...     print(row["seqno"], row["value"])
        3 {"customerID":1,"menuID":200,"qty":2,"total":3.98}
    """
    table = open_table(location)
    if table is None:
        hint = _CREATE_HINTS.get(table_name(location), "name one that is there, like raw or staging")
        msg = f"there is no table at {location} yet: {hint}"
        raise UsageError(msg)
    is_raw = "ingested" in {field.name for field in table.schema().fields}
    if is_raw and kind:
        msg = "raw's rows have no kind: --kind is for staging"
        raise UsageError(msg)
    if kind and kind not in KINDS:
        msg = f"there is no kind {kind!r}: kinds are {', '.join(KINDS)}"
        raise UsageError(msg)
    schema = RAW_SCHEMA if is_raw else STAGING_SCHEMA
    condition = ds.field("seqno") >= since
    if kind:
        condition &= ds.field("kind") == kind
    if topic:
        condition &= ds.field("kafka", "topic") == topic
    files = data_files(table, "seqno", above=since - 1)
    # The seqnos of raw's files do not overlap, so sorting raw file by file suffices. Staging is sorted as a whole.
    file_groups = [[file] for file in files] if is_raw else [files]
    count = 0
    for group in file_groups:
        rows = dataset(table, group, schema).to_table(filter=condition) if group else schema.empty_table()
        for batch in _sort_rows(rows).to_batches(max_chunksize=1000):
            for row in batch.to_pylist():
                if limit is not None and count >= limit:
                    return
                count += 1
                yield _raw_row(row) if is_raw else _staging_row(row)


def _sort_rows(rows: pa.Table) -> pa.Table:
    """Sorts rows by seqno, topic and offset."""
    coordinates = rows["kafka"]
    sort_keys = pa.table(
        {
            "seqno": rows["seqno"],
            "topic": pc.struct_field(coordinates, "topic"),
            "offset": pc.struct_field(coordinates, "offset"),
        }
    )
    order = pc.sort_indices(sort_keys, [(name, "ascending") for name in sort_keys.column_names])
    return rows.take(order)


def _raw_row(row: dict[str, Any]) -> dict[str, Any]:
    timestamp = row["kafka"]["timestamp"]
    return {
        "seqno": row["seqno"],
        "kafka": {**row["kafka"], "timestamp": timestamp and round(timestamp.timestamp() * 1000)},
        "ingested": row["ingested"],
        "key": json_value(row["key"]),
        "value": json_value(row["value"]),
        "headers": row["headers"] and [[header["key"], json_value(header["value"])] for header in row["headers"]],
    }


def _staging_row(row: dict[str, Any]) -> dict[str, Any]:
    row = {
        column: dict(value) if column in ("offsets", "digests") and value else value for column, value in row.items()
    }
    for column in ("key", "value"):
        row[column] = json_value(None if row[column] is None else row[column].encode())
    nullable = ("key", "value") if row["kind"] == "output" else ()
    return {column: value for column, value in row.items() if value is not None or column in nullable}


def json_value(data: bytes | None) -> Any:
    """Returns a message's key or value in the form that JSON output shows: JSON, text, or {"base64": …}.

    JSON that has that form itself is shown in it, too: `zync load` would take it for the bytes in it.
    """
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
    if text.lstrip()[:1] in ("{", "["):
        try:
            value = strict_json(text)
        except ValueError:
            return text
        if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
            return {"base64": base64.b64encode(data).decode()}
        return Verbatim(text if "\n" not in text and "\r" not in text else text.replace("\n", " ").replace("\r", " "))
    return text
