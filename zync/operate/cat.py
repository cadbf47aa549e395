"""`zync cat`: rows of raw or staging as JSON Lines, without starting Spark."""

import base64
import json
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
from zync.staging.table import STAGING_SCHEMA
from zync.text import Verbatim

_MADE_BY = {"raw": "`zync sync-from kafka raw` makes it", "staging": "`zync sync raw staging` makes it"}
KINDS = (
    *("output", "done", "pending", "expired", "late", "duplicate", "quarantined", "released", "discarded"),
    *("ignored", "trimmed", "cursor"),
)


def cat(
    location: str, *, kind: str | None = None, topic: str | None = None, since: int = 0, limit: int | None = None
) -> Iterator[dict[str, Any]]:
    """The table's rows of that kind and topic, from seqno `since` on, in order of seqno, topic, offset.

    Keys and values come as JSON where their text is a JSON object or array, as a string where it is other
    UTF-8, as {"base64": …} otherwise. Staging's rows come without the columns that their kind does not use.
    """
    table = open_table(location)
    if table is None:
        then = _MADE_BY.get(table_name(location), "name one that is there, like raw or staging")
        msg = f"there is no table at {location} yet: {then}"
        raise UsageError(msg)
    is_raw = "ingested" in {field.name for field in table.schema().fields}
    if is_raw and kind:
        msg = "raw's rows have no kind: --kind is for staging"
        raise UsageError(msg)
    if kind and kind not in KINDS:
        msg = f"there is no kind {kind!r}: kinds are {', '.join(KINDS)}"
        raise UsageError(msg)
    schema = RAW_SCHEMA if is_raw else STAGING_SCHEMA
    wanted = ds.field("seqno") >= since
    if kind:
        wanted &= ds.field("kind") == kind
    if topic:
        wanted &= ds.field("kafka", "topic") == topic
    paths = [file.path for file in data_files(table, "seqno", above=since - 1)]
    groups = [[path] for path in paths] if is_raw else [paths]  # raw's files are in order of seqno themselves
    count = 0
    for group in groups:
        found = dataset(table, group, schema).to_table(filter=wanted) if group else schema.empty_table()
        for batch in _sorted(found).to_batches(max_chunksize=1000):
            for row in batch.to_pylist():
                if limit is not None and count >= limit:
                    return
                count += 1
                yield _raw_row(row) if is_raw else _staging_row(row)


def _sorted(rows: pa.Table) -> pa.Table:
    place = rows["kafka"]
    keyed = pa.table(
        {
            "seqno": rows["seqno"],
            "topic": pc.struct_field(place, "topic"),
            "offset": pc.struct_field(place, "offset"),
        }
    )
    order = pc.sort_indices(keyed, [(name, "ascending") for name in keyed.column_names])
    return rows.take(order)


def _raw_row(row: dict[str, Any]) -> dict[str, Any]:
    stamp = row["kafka"]["timestamp"]
    return {
        "seqno": row["seqno"],
        "kafka": {**row["kafka"], "timestamp": stamp and round(stamp.timestamp() * 1000)},
        "ingested": row["ingested"],
        "key": shown(row["key"]),
        "value": shown(row["value"]),
        "headers": row["headers"] and [[one["key"], shown(one["value"])] for one in row["headers"]],
    }


def _staging_row(row: dict[str, Any]) -> dict[str, Any]:
    row = {key: dict(value) if key in ("offsets", "digests") and value else value for key, value in row.items()}
    for name in ("key", "value"):
        row[name] = shown(None if row[name] is None else row[name].encode())
    keep = ("key", "value") if row["kind"] == "output" else ()
    return {key: value for key, value in row.items() if value is not None or key in keep}


def shown(data: bytes | None) -> Any:
    """A message's key or value as `cat` shows it."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
    if text.lstrip()[:1] in ("{", "["):
        try:
            json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            return text
        return Verbatim(text if "\n" not in text and "\r" not in text else text.replace("\n", " ").replace("\r", " "))
    return text


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        msg = "a key stands there twice"
        raise ValueError(msg)
    return found


def _no_constant(name: str) -> None:
    raise ValueError(name)
