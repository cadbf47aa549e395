"""What must hold of staging: of each version by itself, and beside raw."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from zync.config.model import Config
from zync.errors import ZyncError
from zync.lake.files import data_files
from zync.lake.table import first_line
from zync.operate.verify.claim import Claim, files_of, read_file, sound
from zync.raw.table import next_seqno
from zync.staging.bookkeeping import IN_FLIGHT_KINDS, SETTLED_KINDS, Known, advance, read_cursor
from zync.staging.set_aside import REVISITS, seqnos
from zync.staging.table import STAGING_SCHEMA, SYNC

_COLUMNS = ["kind", "seqno", "sync", "kafka", "txn", "records", "state", "head"]


def of_staging(table: DeltaTable, config: Config, read: dict[str, Any]) -> Iterator[Claim]:
    """The claims about one version of staging. `read`: its files' rows by path, kept from version to version."""
    files, there = files_of(table), data_files(table, "seqno")
    for gone in read.keys() - {file.path for file in there}:
        del read[gone]
    for file in there:
        if file.path not in read:
            read[file.path] = read_file(table, file, _COLUMNS, STAGING_SCHEMA)
    readable = [read[file.path] for file in there if sound(files, file, read[file.path])]
    yield files
    rows = pa.concat_tables([STAGING_SCHEMA.empty_table().select(_COLUMNS), *readable])
    yield _syncs(table, rows)
    try:
        cursor = read_cursor(table)
    except (ZyncError, OSError, pa.ArrowException) as error:
        yield Claim("staging's bookkeeping can be read", 0, [first_line(error)])
        return
    in_flight = _in_flight(rows.filter(pc.greater_equal(rows["sync"], cursor.full)))
    settled = rows.filter(pc.is_in(rows["kind"], pa.array([*SETTLED_KINDS, "late", "duplicate", "ignored", "trimmed"])))
    yield _flying_once(rows)
    yield _settled_once(settled, in_flight, cursor.head)
    yield _once(rows, config.transactions.remember)
    yield _revisited_once(rows)
    yield _outputs(rows, cursor.offsets)
    holding = [one["seqno"] for one in in_flight.to_pylist() if one["kind"] == "pending"]
    claim = Claim("the cursor is before the first record in flight", 1)
    wanted = min(holding) - 1 if holding else cursor.head
    if cursor.seqno != wanted:
        claim.broken(f"sync {cursor.sync}: the cursor is {cursor.seqno}, by what is in flight it is {wanted}")
    yield claim


def _in_flight(rows: pa.Table) -> pa.Table:
    """What is in flight by the rows of the syncs since the last that wrote all of it; other columns are null."""
    for name in Known().in_flight.column_names:
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(len(rows), STAGING_SCHEMA.field(name).type))
    return advance(Known(), rows).in_flight


def _syncs(table: DeltaTable, rows: pa.Table) -> Claim:
    numbers = sorted(rows.filter(pc.equal(rows["kind"], "cursor"))["sync"].to_pylist())
    claim = Claim("each sync has one cursor row", len(numbers))
    last = table.transaction_version(SYNC)
    if numbers != list(range(1, (last or 0) + 1)):
        claim.broken(f"the log's last sync is {last}, the cursor rows are of {numbers[:3]} … {numbers[-3:]}")
    return claim


def _flying_once(rows: pa.Table) -> Claim:
    flying = rows.filter(pc.is_in(rows["kind"], pa.array(IN_FLIGHT_KINDS)))
    claim = Claim("each sync says of a transaction in flight once that it is", flying.num_rows)
    times = flying.group_by(["sync", "txn"]).aggregate([([], "count_all")])
    for one in times.filter(pc.greater(times["count_all"], 1)).to_pylist():
        claim.broken(f"sync {one['sync']} says it of transaction {one['txn']} {one['count_all']} times")
    return claim


def _settled_once(settled: pa.Table, in_flight: pa.Table, head: int) -> Claim:
    """Every record up to head belongs to one settled row, or is in flight."""
    claim = Claim("each record up to head is settled once, or in flight", head)
    steps = np.zeros(head + 2, dtype=np.int32)
    for part in (settled["records"], in_flight["records"]):
        ranges = part.combine_chunks().flatten()
        np.add.at(steps, ranges.field("first").to_numpy(), 1)
        np.add.at(steps, ranges.field("last").to_numpy() + 1, -1)
    times = np.cumsum(steps)[: head + 1]
    for seqno in np.flatnonzero(times[1:] != 1) + 1:
        claim.broken(f"seqno {seqno} is settled or in flight {times[seqno]} times")
    return claim


def _once(rows: pa.Table, remember: int) -> Claim:
    """No id is settled twice while it is remembered."""
    settled = rows.filter(pc.and_(pc.is_in(rows["kind"], pa.array(SETTLED_KINDS)), pc.is_valid(rows["txn"])))
    settled = settled.filter(pc.is_null(settled["state"]))  # others are about what was set aside
    claim = Claim("each transaction is settled once", settled.num_rows)
    again = settled.group_by("txn").aggregate([("seqno", "count")])
    for txn in again.filter(pc.greater(again["seqno_count"], 1))["txn"].to_pylist():
        seqnos = sorted(settled.filter(pc.equal(settled["txn"], txn))["seqno"].to_pylist())
        if any(later - earlier <= remember for earlier, later in zip(seqnos, seqnos[1:], strict=False)):
            claim.broken(f"transaction {txn} is settled at seqnos {', '.join(map(str, seqnos))}")
    return claim


def _revisited_once(rows: pa.Table) -> Claim:
    """Each record that was redriven or dropped had been set aside, and is so no more."""
    claim = Claim("what was set aside is redriven or dropped once at most")
    aside: Counter[int] = Counter()
    set_aside = pc.is_in(rows["kind"], pa.array(["quarantined", "late"]))
    decided = pc.and_(pc.is_in(rows["kind"], pa.array(["done", "discarded"])), pc.is_valid(rows["state"]))
    for row in rows.filter(pc.or_(set_aside, decided)).sort_by("seqno").to_pylist():
        revisits = json.loads(row["state"])[REVISITS] if row["state"] else None
        claim.count += revisits is not None
        if revisits is not None and any(aside[seqno] != 1 for seqno in seqnos(revisits)):
            claim.broken(f"seqno {row['seqno']} is about records that were not set aside")
        if revisits is not None and row["kind"] != "quarantined":
            aside.subtract(seqnos(revisits))
        elif revisits is None:
            aside.update(seqnos(row["records"]))
    return claim


def _outputs(rows: pa.Table, next_offsets: dict[str, int]) -> Claim:
    """Offsets of each output topic are 0, 1, 2 … in order of transaction; each transaction with output is done."""
    out = rows.filter(pc.equal(rows["kind"], "output"))
    claim = Claim("output offsets rise by one, in order of transaction, and each transaction is done", out.num_rows)
    done = rows.filter(pc.is_in(rows["kind"], pa.array(["done", "released"])))["seqno"].unique()
    strange = out.filter(pc.invert(pc.is_in(out["seqno"], done)))["seqno"].unique().to_pylist()
    for seqno in strange:
        claim.broken(f"output of seqno {seqno}, which is no transaction that is done")
    place = out["kafka"].combine_chunks()
    table = pa.table({"topic": place.field("topic"), "offset": place.field("offset"), "seqno": out["seqno"]})
    table = table.append_column("turn", pc.coalesce(out["head"], out["seqno"]))
    for topic in sorted({*table["topic"].unique().to_pylist(), *next_offsets}):
        mine = table.filter(pc.equal(table["topic"], topic)).sort_by("offset")
        offsets = mine["offset"].to_numpy()
        for index in np.flatnonzero(offsets != np.arange(len(offsets)))[:1]:
            claim.broken(f"{topic}: offset {offsets[index]} stands where {index} should")
        later, seqnos = np.diff(mine["turn"].to_numpy()), np.diff(mine["seqno"].to_numpy())
        for index in np.flatnonzero((later < 0) | ((later == 0) & (seqnos < 0)))[:1]:
            claim.broken(f"{topic}: the order of transactions is not kept after offset {mine['offset'][index]}")
        if len(offsets) != next_offsets.get(topic, 0):
            claim.broken(f"{topic}: {len(offsets)} rows, but the cursor's next offset is {next_offsets.get(topic, 0)}")
    return claim


def made_of(staging: DeltaTable, raw: DeltaTable) -> Claim:
    """Whether that raw is the one that staging was made of."""
    claim = Claim("staging was made of this raw, which has all records that it knows of", 1)
    try:
        cursor = read_cursor(staging)
    except (ZyncError, OSError, pa.ArrowException):  # which is a claim of its own
        return claim
    if cursor.raw_id not in (None, str(raw.metadata().id)):
        claim.broken(f"it was made of the raw with table id {cursor.raw_id}, and this is {raw.metadata().id}")
    if cursor.head >= next_seqno(raw):
        claim.broken(f"it has seen records up to seqno {cursor.head:,}, and raw's last is {next_seqno(raw) - 1:,}")
    return claim
