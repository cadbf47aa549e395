"""Reads staging's bookkeeping without Spark: the cursor, the settled transactions and those in flight."""

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from zync.config.model import Config
from zync.errors import ZyncError
from zync.lake.files import DataFile, data_files, dataset
from zync.lake.ranges import RANGES_DDL, SeqnoRanges
from zync.staging.kinds import IN_FLIGHT_KINDS, SETTLED_KINDS
from zync.staging.table import STAGING_SCHEMA, SYNC

_SETTLED = pa.schema([STAGING_SCHEMA.field("txn"), STAGING_SCHEMA.field("seqno")])
_IN_FLIGHT = pa.schema(
    [STAGING_SCHEMA.field(name) for name in ("kind", "txn", "seqno", "records", "count", "since", "state", "reason")]
)
_SETTLED_RECORDS = pa.schema(
    [STAGING_SCHEMA.field("txn"), ("completes_at", pa.int64()), STAGING_SCHEMA.field("records")]
)

IN_FLIGHT_COLUMNS = (
    f"kind string, txn string, seqno bigint, records {RANGES_DDL}, count bigint, since timestamp, state string, "
    "reason string"
)
"""The columns of `Bookkeeping.in_flight` as a Spark schema."""


@dataclass(frozen=True)
class Cursor:
    """The newest cursor row of staging; all zero before the first sync.

    Attributes:
        seqno: The cursor: every record up to it is settled, or part of an expired transaction.
        head: The largest seqno of raw that the sync read.
        sync: The number of the sync that wrote the row.
        full: The newest sync that wrote a row for each transaction in flight.
        offsets: The next offset of each output topic.
        raw_id: The table id of the raw that staging is made from.
        raw_version: The version of raw that the sync read.
        digests: The digests of the config, the rules and the lookup tables.
        columns: The columns of the outputs as JSON (zync/rules/schema.py).
    """

    seqno: int = 0
    head: int = 0
    sync: int = 0
    full: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    raw_id: str | None = None
    raw_version: int = -1
    digests: dict[str, str] = field(default_factory=dict)
    columns: str | None = None

    @property
    def lookups(self) -> dict[str, str]:
        """The digests of the lookup tables by their names in `digests`: `lookup <name>`."""
        return {name: digest for name, digest in self.digests.items() if name.startswith("lookup ")}

    def with_rules_of(self, config: Config) -> bool:
        """Returns whether the sync ran with the rules and the names of lookup tables of `config`.

        The contents of the lookup tables may differ.
        """
        lookup_names = {f"lookup {lookup}" for lookup in config.lookups}
        return lookup_names == self.lookups.keys() and self.digests == {**config.digests, **self.lookups}

    def judged_otherwise(self, config: Config) -> bool:
        """Returns whether `config` changes `id` or `done`, so that all transactions in flight must be judged again."""
        stored_digest = self.digests.get("transactions")
        return stored_digest is not None and stored_digest != config.digests["transactions"]


@dataclass(frozen=True)
class Bookkeeping:
    """Staging's bookkeeping at a version of the table.

    Attributes:
        cursor: The newest cursor row.
        settled: A row (txn, seqno) for each transaction that was settled within the newest `remember` records.
        in_flight: The newest row of each transaction that is pending or expired (`IN_FLIGHT_COLUMNS`).
    """

    cursor: Cursor = field(default_factory=Cursor)
    settled: pa.Table = field(default_factory=_SETTLED.empty_table)
    in_flight: pa.Table = field(default_factory=_IN_FLIGHT.empty_table)


def advance(bookkeeping: Bookkeeping, rows: pa.Table) -> Bookkeeping:
    """Returns the bookkeeping after a sync that wrote the bookkeeping `rows`, with the cursor unchanged."""
    settled = _settled(rows)
    in_flight = pa.concat_tables([bookkeeping.in_flight, _in_flight(rows)])
    return Bookkeeping(
        bookkeeping.cursor, pa.concat_tables([bookkeeping.settled, settled]), _newest(in_flight, settled)
    )


def records_in(in_flight: pa.Table) -> int:
    """Counts the records of the transactions in flight."""
    return int(pc.sum(in_flight["count"]).as_py() or 0)


def read_cursor(table: DeltaTable) -> Cursor:
    """Reads the cursor row of the newest sync; returns an all-zero cursor for a staging without syncs.

    Raises:
        ZyncError: staging has none or several cursor rows for the sync.
    """
    number = table.transaction_version(SYNC)
    if number is None:
        return Cursor()
    files = data_files(table, "sync", above=number - 1)
    row_filter = (ds.field("kind") == "cursor") & (ds.field("sync") == number)
    rows = _scan(table, files, row_filter, STAGING_SCHEMA.names)
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
        digests=dict(row["digests"] or []),
        columns=row["state"],
    )


def read_bookkeeping(table: DeltaTable | None, remember: int) -> Bookkeeping:
    """Reads staging's bookkeeping at the version of `table`.

    Args:
        table: Staging; None, or a staging without syncs, gives empty bookkeeping.
        remember: Of how many records below the head to read the settled transactions.
    """
    if table is None or table.transaction_version(SYNC) is None:
        return Bookkeeping()
    cursor = read_cursor(table)
    recent = _rows(
        table, ds.field("seqno") > cursor.head - remember, above_seqno=cursor.head - remember, kinds=SETTLED_KINDS
    )
    since_full = _rows(table, ds.field("sync") >= cursor.full, above_sync=cursor.full - 1)
    return Bookkeeping(cursor, _settled(recent), _newest(_in_flight(since_full), _settled(since_full)))


def read_settled(table: DeltaTable, settled: pa.Table) -> pa.Table:
    """Reads which records the `settled` transactions (txn, seqno) have.

    Returns:
        A row (txn, completes_at, records) for each transaction. The ranges `records` include the late and the
        duplicate records of the transaction.
    """
    seqnos = settled["seqno"]
    columns = ["kind", "txn", "seqno", "records"]
    if not len(seqnos):
        return _SETTLED_RECORDS.empty_table()
    files = data_files(table, "seqno", above=pc.min(seqnos).as_py() - 1, upto=pc.max(seqnos).as_py())
    row_filter = ds.field("seqno").isin(seqnos.combine_chunks()) & ds.field("kind").isin(list(SETTLED_KINDS))
    rows = _scan(table, files, row_filter & ds.field("txn").is_valid(), columns)
    transactions = {row["txn"]: {"completes_at": row["seqno"], "records": row["records"]} for row in rows.to_pylist()}
    files = data_files(table, "seqno", above=(SeqnoRanges.of_column(rows["records"]).lowest or 0) - 1)
    row_filter = ds.field("kind").isin(["late", "duplicate"]) & ds.field("txn").isin(list(transactions))
    for row in _scan(table, files, row_filter, columns).to_pylist():
        transactions[row["txn"]]["records"] += row["records"]
    return pa.Table.from_pylist(
        [{"txn": txn, **transaction} for txn, transaction in transactions.items()], schema=_SETTLED_RECORDS
    )


def _rows(
    table: DeltaTable,
    row_filter: ds.Expression,
    *,
    above_sync: int | None = None,
    above_seqno: int | None = None,
    kinds: tuple[str, ...] = SETTLED_KINDS + IN_FLIGHT_KINDS,
) -> pa.Table:
    """Reads the rows of the kinds that pass the filter, of files with a sync (or a seqno) above the bound."""
    files = (
        data_files(table, "sync", above=above_sync)
        if above_sync is not None
        else data_files(table, "seqno", above=above_seqno or 0)
    )
    columns = [*_IN_FLIGHT.names, "sync"] if IN_FLIGHT_KINDS[0] in kinds else ["kind", "txn", "seqno", "state"]
    return _scan(table, files, row_filter & ds.field("kind").isin(list(kinds)), columns)


def _scan(table: DeltaTable, files: list[DataFile], row_filter: ds.Expression, columns: list[str]) -> pa.Table:
    if not files:
        return pa.schema([STAGING_SCHEMA.field(name) for name in columns]).empty_table()
    return dataset(table, files, STAGING_SCHEMA).to_table(columns=columns, filter=row_filter)


def _settled(rows: pa.Table) -> pa.Table:
    """Selects the rows that settle a transaction. A row with a state is of a redrive or a drop, which settle none."""
    mask = pc.and_(pc.is_in(rows["kind"], pa.array(SETTLED_KINDS)), pc.is_valid(rows["txn"]))
    mask = pc.and_(mask, pc.is_null(rows["state"]))
    return rows.filter(mask).select(_SETTLED.names)


def _in_flight(rows: pa.Table) -> pa.Table:
    """Selects the rows of transactions in flight, in order of sync."""
    rows = rows.filter(pc.is_in(rows["kind"], pa.array(IN_FLIGHT_KINDS)))
    return (rows.sort_by("sync") if "sync" in rows.column_names else rows).select(_IN_FLIGHT.names)


def _newest(rows: pa.Table, settled: pa.Table) -> pa.Table:
    """Returns the last row of each transaction in flight, without transactions settled since their first record."""
    if not rows.num_rows:
        return rows
    numbered = rows.append_column("row", pa.array(range(rows.num_rows)))
    last_rows = numbered.group_by("txn").aggregate([("row", "max")])
    rows = rows.take(last_rows["row_max"].sort())
    if not settled.num_rows:
        return rows
    last_settled = settled.group_by("txn").aggregate([("seqno", "max")])
    index = pc.index_in(rows["txn"], last_settled["txn"])
    settled_at = pc.fill_null(last_settled["seqno_max"].take(index), 0)
    return rows.filter(pc.greater(rows["seqno"], settled_at))
