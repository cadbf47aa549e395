"""What staging knows: how far it got, which transactions are settled, which are in flight. Read without Spark."""

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from zync.config.model import Config
from zync.errors import ZyncError
from zync.lake.files import data_files, dataset
from zync.staging.table import STAGING_SCHEMA, SYNC

SETTLED_KINDS = ("done", "quarantined", "released", "discarded")
IN_FLIGHT_KINDS = ("pending", "expired")

_SETTLED = pa.schema([STAGING_SCHEMA.field("txn"), STAGING_SCHEMA.field("seqno")])
_IN_FLIGHT = pa.schema(
    [STAGING_SCHEMA.field(name) for name in ("kind", "txn", "seqno", "records", "count", "since", "state", "reason")]
)


_GATHERED = pa.schema([STAGING_SCHEMA.field("txn"), ("completes_at", pa.int64()), STAGING_SCHEMA.field("records")])

IN_FLIGHT_COLUMNS = (
    "kind string, txn string, seqno bigint, records array<struct<first: bigint, last: bigint>>, count bigint, "
    "since timestamp, state string, reason string"
)
"""The columns of `Known.in_flight`, for Spark."""


@dataclass(frozen=True)
class Cursor:
    """The newest cursor row: `seqno` is the cursor; all zero before the first sync.

    `columns`: what outputs have, on record (zync/rules/schema.py).
    """

    seqno: int = 0
    head: int = 0
    sync: int = 0
    full: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    raw_id: str | None = None
    raw_version: int = -1
    nonce: str = ""
    digests: dict[str, str] = field(default_factory=dict)
    columns: str | None = None

    @property
    def lookups(self) -> dict[str, str]:
        """The digests of lookup tables."""
        return {name: digest for name, digest in self.digests.items() if name.startswith("lookup ")}

    def with_rules_of(self, config: Config) -> bool:
        """Whether that sync ran with the same rules and lookup tables, whatever those held."""
        lookups = {f"lookup {one}" for one in config.lookups}
        return lookups == self.lookups.keys() and self.digests == {**config.digests, **self.lookups}

    def judged_otherwise(self, config: Config) -> bool:
        """Whether ids or `done` are not what they were, so that all that is in flight is to be judged anew."""
        before = self.digests.get("transactions")
        return before is not None and before != config.digests["transactions"]


@dataclass(frozen=True)
class Known:
    """Staging's bookkeeping at one version.

    settled: (txn, seqno), a row for each transaction settled within the window that was asked for.
    in_flight: the newest row of each transaction that is pending or expired.
    """

    cursor: Cursor = field(default_factory=Cursor)
    settled: pa.Table = field(default_factory=_SETTLED.empty_table)
    in_flight: pa.Table = field(default_factory=_IN_FLIGHT.empty_table)


def advance(known: Known, rows: pa.Table) -> Known:
    """What is known after a sync that wrote the bookkeeping `rows`; the cursor is the caller's to move."""
    settled = _settled(rows)
    in_flight = pa.concat_tables([known.in_flight, _in_flight(rows)])
    return Known(known.cursor, pa.concat_tables([known.settled, settled]), _newest(in_flight, settled))


def records_in(in_flight: pa.Table) -> int:
    """How many records those transactions have."""
    return int(pc.sum(in_flight["count"]).as_py() or 0)


def read_cursor(table: DeltaTable) -> Cursor:
    """The cursor row of the newest sync; an all-zero one for a staging without syncs."""
    number = table.transaction_version(SYNC)
    if number is None:
        return Cursor()
    files = [one.path for one in data_files(table, "sync", above=number - 1)]
    wanted = (ds.field("kind") == "cursor") & (ds.field("sync") == number)
    rows = _scan(table, files, wanted, STAGING_SCHEMA.names)
    if rows.num_rows != 1:
        msg = f"staging at {table.table_uri} has {rows.num_rows} cursor rows for sync {number}, not 1: it is damaged"
        raise ZyncError(msg)
    row = rows.to_pylist()[0]
    return Cursor(
        seqno=row["seqno"],
        head=row["head"],
        sync=number,
        full=row["full"],
        offsets=dict(row["offsets"] or []),
        raw_id=row["raw"]["id"],
        raw_version=row["raw"]["version"],
        nonce=row["nonce"],
        digests=dict(row["digests"] or []),
        columns=row["state"],
    )


def read_known(table: DeltaTable | None, remember: int) -> Known:
    """All that a sync, or an operator, needs to know of staging at this version."""
    if table is None or table.transaction_version(SYNC) is None:
        return Known()
    cursor = read_cursor(table)
    recent = _rows(
        table, ds.field("seqno") > cursor.head - remember, above_seqno=cursor.head - remember, kinds=SETTLED_KINDS
    )
    since_full = _rows(table, ds.field("sync") >= cursor.full, above_sync=cursor.full - 1)
    return Known(cursor, _settled(recent), _newest(_in_flight(since_full), _settled(since_full)))


def read_settled(table: DeltaTable, wanted: pa.Table) -> pa.Table:
    """The records of settled transactions, by (txn, seqno): (txn, completes_at, records as ranges).

    Their records that came too late, or were sent again, are among the ranges.
    """
    seqnos = wanted["seqno"]
    names = ["kind", "txn", "seqno", "records"]
    if not len(seqnos):
        return _GATHERED.empty_table()
    files = data_files(table, "seqno", above=pc.min(seqnos).as_py() - 1, upto=pc.max(seqnos).as_py())
    mine = ds.field("seqno").isin(seqnos.combine_chunks()) & ds.field("kind").isin(list(SETTLED_KINDS))
    rows = _scan(table, [one.path for one in files], mine & ds.field("txn").is_valid(), names).to_pylist()
    found = {row["txn"]: {"completes_at": row["seqno"], "records": row["records"]} for row in rows}
    first = min(one["records"][0]["first"] for one in found.values())
    files = data_files(table, "seqno", above=first - 1)
    mine = ds.field("kind").isin(["late", "duplicate"]) & ds.field("txn").isin(list(found))
    for row in _scan(table, [one.path for one in files], mine, names).to_pylist():
        found[row["txn"]]["records"] += row["records"]
    return pa.Table.from_pylist([{"txn": txn, **one} for txn, one in found.items()], schema=_GATHERED)


def _rows(
    table: DeltaTable,
    wanted: ds.Expression,
    *,
    above_sync: int | None = None,
    above_seqno: int | None = None,
    kinds: tuple[str, ...] = SETTLED_KINDS + IN_FLIGHT_KINDS,
) -> pa.Table:
    files = (
        data_files(table, "sync", above=above_sync)
        if above_sync is not None
        else data_files(table, "seqno", above=above_seqno or 0)
    )
    columns = [*_IN_FLIGHT.names, "sync"] if IN_FLIGHT_KINDS[0] in kinds else ["kind", "txn", "seqno", "state"]
    return _scan(table, [one.path for one in files], wanted & ds.field("kind").isin(list(kinds)), columns)


def _scan(table: DeltaTable, files: list[str], wanted: ds.Expression, columns: list[str]) -> pa.Table:
    if not files:
        return pa.schema([STAGING_SCHEMA.field(name) for name in columns]).empty_table()
    return dataset(table, files, STAGING_SCHEMA).to_table(columns=columns, filter=wanted)


def _settled(rows: pa.Table) -> pa.Table:
    """What is settled; a redrive or drop later on settles nothing anew."""
    mask = pc.and_(pc.is_in(rows["kind"], pa.array(SETTLED_KINDS)), pc.is_valid(rows["txn"]))
    mask = pc.and_(mask, pc.is_null(rows["state"]))
    return rows.filter(mask).select(_SETTLED.names)


def _in_flight(rows: pa.Table) -> pa.Table:
    rows = rows.filter(pc.is_in(rows["kind"], pa.array(IN_FLIGHT_KINDS)))
    return (rows.sort_by("sync") if "sync" in rows.column_names else rows).select(_IN_FLIGHT.names)


def _newest(rows: pa.Table, settled: pa.Table) -> pa.Table:
    """The last row of each transaction, without those settled since their first record."""
    if not rows.num_rows:
        return rows
    numbered = rows.append_column("row", pa.array(range(rows.num_rows)))
    last = numbered.group_by("txn").aggregate([("row", "max")])
    rows = rows.take(last["row_max"].sort())
    if not settled.num_rows:
        return rows
    newest = settled.group_by("txn").aggregate([("seqno", "max")])
    index = pc.index_in(rows["txn"], newest["txn"])
    settled_at = pc.fill_null(newest["seqno_max"].take(index), 0)
    return rows.filter(pc.greater(rows["seqno"], settled_at))
