"""Claims about staging: each version by itself, and compared with raw."""

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
from zync.lake.ranges import SeqnoRanges
from zync.lake.table import first_line
from zync.operate.verify.claim import Claim, check_file, files_claim, read_file
from zync.raw.table import next_seqno
from zync.staging.bookkeeping import Bookkeeping, advance, read_cursor
from zync.staging.kinds import COMPLETED_KINDS, FOLLOW_UP_KINDS, IN_FLIGHT_KINDS, SETTLED_KINDS, UNDECIDED_KINDS
from zync.staging.set_aside import revisited
from zync.staging.table import STAGING_SCHEMA, SYNC

_COLUMNS = ["kind", "seqno", "sync", "kafka", "txn", "records", "state", "head"]


def staging_claims(table: DeltaTable, config: Config, rows_by_path: dict[str, Any]) -> Iterator[Claim]:
    """Checks a version of staging and yields the claims.

    Args:
        table: the version.
        config: the config of the pipeline.
        rows_by_path: a cache of the files' rows. This adds the version's files and drops all others.
    """
    claim, files = files_claim(table), data_files(table, "seqno")
    for path in rows_by_path.keys() - {file.path for file in files}:
        del rows_by_path[path]
    for file in files:
        if file.path not in rows_by_path:
            rows_by_path[file.path] = read_file(table, file, _COLUMNS, STAGING_SCHEMA)
    readable = [rows_by_path[file.path] for file in files if check_file(claim, file, rows_by_path[file.path])]
    yield claim
    rows = pa.concat_tables([STAGING_SCHEMA.empty_table().select(_COLUMNS), *readable])
    yield _check_syncs(table, rows)
    try:
        cursor = read_cursor(table)
    except (ZyncError, OSError, pa.ArrowException) as error:
        yield Claim("staging's bookkeeping can be read", 0, [first_line(error)])
        return
    in_flight = _read_in_flight(rows.filter(pc.greater_equal(rows["sync"], cursor.full)))
    settled = rows.filter(pc.is_in(rows["kind"], pa.array([*SETTLED_KINDS, *FOLLOW_UP_KINDS, "trimmed"])))
    yield _check_in_flight_rows(rows)
    yield _check_records(settled, in_flight, cursor.head)
    yield _check_settled_once(rows, config.transactions.remember)
    yield _check_revisits(rows)
    yield _check_outputs(rows, cursor.offsets)
    pending = [row["seqno"] for row in in_flight.to_pylist() if row["kind"] == "pending"]
    claim = Claim("the cursor is before the first record in flight", 1)
    expected = min(pending) - 1 if pending else cursor.head
    if cursor.seqno != expected:
        claim.add_violation(f"sync {cursor.sync}: the cursor is {cursor.seqno}, by what is in flight it is {expected}")
    yield claim


def _read_in_flight(rows: pa.Table) -> pa.Table:
    """Returns what is in flight, computed from the rows of all syncs since the last that wrote it in full.

    Columns that `rows` does not have are null.
    """
    for name in Bookkeeping().in_flight.column_names:
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(len(rows), STAGING_SCHEMA.field(name).type))
    return advance(Bookkeeping(), rows).in_flight


def _check_syncs(table: DeltaTable, rows: pa.Table) -> Claim:
    """Checks that the cursor rows are of the syncs 1, 2, 3 … up to the last in the log."""
    syncs = sorted(rows.filter(pc.equal(rows["kind"], "cursor"))["sync"].to_pylist())
    claim = Claim("each sync has one cursor row", len(syncs))
    last = table.transaction_version(SYNC)
    if syncs != list(range(1, (last or 0) + 1)):
        claim.add_violation(f"the log's last sync is {last}, the cursor rows are of {syncs[:3]} … {syncs[-3:]}")
    return claim


def _check_in_flight_rows(rows: pa.Table) -> Claim:
    """Checks that no sync has several rows for the same transaction in flight."""
    in_flight = rows.filter(pc.is_in(rows["kind"], pa.array(IN_FLIGHT_KINDS)))
    claim = Claim("each sync says of a transaction in flight once that it is", in_flight.num_rows)
    counts = in_flight.group_by(["sync", "txn"]).aggregate([([], "count_all")])
    for row in counts.filter(pc.greater(counts["count_all"], 1)).to_pylist():
        claim.add_violation(f"sync {row['sync']} says it of transaction {row['txn']} {row['count_all']} times")
    return claim


def _check_records(settled: pa.Table, in_flight: pa.Table, head: int) -> Claim:
    """Checks that every record up to head belongs to exactly one row: a settled one, or one in flight."""
    claim = Claim("each record up to head is settled once, or in flight", head)
    ranges = SeqnoRanges.concat(SeqnoRanges.of_column(rows["records"]) for rows in (settled, in_flight))
    counts = ranges.multiplicity(head)
    for seqno in np.flatnonzero(counts[1:] != 1) + 1:
        claim.add_violation(f"seqno {seqno} is settled or in flight {counts[seqno]} times")
    return claim


def _check_settled_once(rows: pa.Table, remember: int) -> Claim:
    """Checks that no transaction is settled again while its id is remembered."""
    settled = rows.filter(pc.and_(pc.is_in(rows["kind"], pa.array(SETTLED_KINDS)), pc.is_valid(rows["txn"])))
    settled = settled.filter(pc.is_null(settled["state"]))  # rows with a state are about what was set aside
    claim = Claim("each transaction is settled once", settled.num_rows)
    counts = settled.group_by("txn").aggregate([("seqno", "count")])
    for txn in counts.filter(pc.greater(counts["seqno_count"], 1))["txn"].to_pylist():
        settled_at = sorted(settled.filter(pc.equal(settled["txn"], txn))["seqno"].to_pylist())
        if any(later - earlier <= remember for earlier, later in zip(settled_at, settled_at[1:], strict=False)):
            claim.add_violation(f"transaction {txn} is settled at seqnos {', '.join(map(str, settled_at))}")
    return claim


def _check_revisits(rows: pa.Table) -> Claim:
    """Checks that each record that was redriven or dropped was set aside before, and is not any more."""
    claim = Claim("what was set aside is redriven or dropped once at most")
    set_aside_counts: Counter[int] = Counter()
    is_set_aside = pc.is_in(rows["kind"], pa.array(UNDECIDED_KINDS))
    is_decided = pc.and_(pc.is_in(rows["kind"], pa.array(["done", "discarded"])), pc.is_valid(rows["state"]))
    for row in rows.filter(pc.or_(is_set_aside, is_decided)).sort_by("seqno").to_pylist():
        if not row["state"]:
            set_aside_counts.update(SeqnoRanges.of_structs(row["records"]).seqnos.tolist())
            continue
        claim.count += 1
        seqnos = revisited(row["state"]).seqnos.tolist()
        if any(set_aside_counts[seqno] != 1 for seqno in seqnos):
            claim.add_violation(f"seqno {row['seqno']} is about records that were not set aside")
        if row["kind"] != "quarantined":
            set_aside_counts.subtract(seqnos)
    return claim


def _check_outputs(rows: pa.Table, next_offsets: dict[str, int]) -> Claim:
    """Checks that output offsets are 0, 1, 2 … in order of transaction, and that each of these transactions is done.

    Args:
        rows: the rows of staging.
        next_offsets: the cursor's next offset of each output topic.
    """
    outputs = rows.filter(pc.equal(rows["kind"], "output"))
    claim = Claim("output offsets rise by one, in order of transaction, and each transaction is done", outputs.num_rows)
    done = rows.filter(pc.is_in(rows["kind"], pa.array(COMPLETED_KINDS)))["seqno"].unique()
    not_done = outputs.filter(pc.invert(pc.is_in(outputs["seqno"], done)))["seqno"].unique().to_pylist()
    for seqno in not_done:
        claim.add_violation(f"output of seqno {seqno}, which is no transaction that is done")
    coordinates = outputs["kafka"].combine_chunks()
    table = pa.table(
        {"topic": coordinates.field("topic"), "offset": coordinates.field("offset"), "seqno": outputs["seqno"]}
    )
    table = table.append_column("turn", pc.coalesce(outputs["head"], outputs["seqno"]))
    for topic in sorted({*table["topic"].unique().to_pylist(), *next_offsets}):
        topic_rows = table.filter(pc.equal(table["topic"], topic)).sort_by("offset")
        offsets = topic_rows["offset"].to_numpy()
        for index in np.flatnonzero(offsets != np.arange(len(offsets)))[:1]:
            claim.add_violation(f"{topic}: offset {offsets[index]} stands where {index} should")
        turn_steps, seqno_steps = np.diff(topic_rows["turn"].to_numpy()), np.diff(topic_rows["seqno"].to_numpy())
        for index in np.flatnonzero((turn_steps < 0) | ((turn_steps == 0) & (seqno_steps < 0)))[:1]:
            offset = topic_rows["offset"][index]
            claim.add_violation(f"{topic}: the order of transactions is not kept after offset {offset}")
        next_offset = next_offsets.get(topic, 0)
        if len(offsets) != next_offset:
            claim.add_violation(f"{topic}: {len(offsets)} rows, but the cursor's next offset is {next_offset}")
    return claim


def same_raw_claim(staging: DeltaTable, raw: DeltaTable) -> Claim:
    """Checks that staging was made of this raw, and that raw has all records up to staging's head."""
    claim = Claim("staging was made of this raw, which has all records that it knows of", 1)
    try:
        cursor = read_cursor(staging)
    except (ZyncError, OSError, pa.ArrowException):  # `staging_claims` reports that as a claim of its own
        return claim
    if cursor.raw_id not in (None, str(raw.metadata().id)):
        claim.add_violation(f"it was made of the raw with table id {cursor.raw_id}, and this is {raw.metadata().id}")
    if cursor.head >= next_seqno(raw):
        claim.add_violation(
            f"it has seen records up to seqno {cursor.head:,}, and raw's last is {next_seqno(raw) - 1:,}"
        )
    return claim
