"""`zync verify`: proves of raw and staging, as they are, what zync promises; or says what is damaged, and where."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileType

from zync.config import Config
from zync.errors import ZyncError
from zync.ingest.batch import Source
from zync.ingest.raw import RAW_SCHEMA, existing_raw, first_seqno, next_seqno, positions, stored_id
from zync.lake import DataFile, data_files, dataset, first_line, table_files
from zync.staging.table import STAGING_SCHEMA, SYNC, existing_staging
from zync.transactions.known import IN_FLIGHT_KINDS, SETTLED_KINDS, Known, advance, read_cursor
from zync.transactions.set_aside import REVISITS, seqnos

_SHOWN = 20
"""Violations of one claim that are listed; more are counted."""
_OF_RAW = ["seqno", "kafka", "ingested"]
_OF_STAGING = ["kind", "seqno", "sync", "kafka", "txn", "records", "state", "head"]


@dataclass
class Claim:
    """Something that must hold: of how many it was shown, and where it does not."""

    text: str
    count: int = 0
    violations: list[str] = field(default_factory=list)
    more: int = 0

    def broken(self, where: str) -> None:
        """Notes a place where it does not hold."""
        if len(self.violations) < _SHOWN:
            self.violations.append(where)
        else:
            self.more += 1


def verify(raw: str, staging: str | None, config: Config, *, every_version: bool, kafka: bool) -> list[Claim]:
    """The claims about both tables (raw alone, if `staging` is None); those with violations do not hold."""
    table = existing_raw(raw)
    claims = [*_raw(table)]
    if kafka:
        claims.append(_against_kafka(table, config))
    if staging is not None:
        newest = existing_staging(staging)
        read: dict[str, Any] = {}
        kept = Claim("versions of staging before this one are as they must be")
        for old in _kept(newest, kept) if every_version else ():
            kept.count += 1
            if old.transaction_version(SYNC) is not None:
                claims += _named(f"version {old.version()}: ", _staging(old, config, read))
        claims += [kept] if every_version else []
        claims += [*_staging(newest, config, read), _made_of(newest, table)]
    return claims


def _made_of(staging: DeltaTable, raw: DeltaTable) -> Claim:
    claim = Claim("staging was made of this raw, which has all records that it knows of", 1)
    try:
        cursor = read_cursor(staging)
    except (ZyncError, OSError):  # which is a claim of its own
        return claim
    if cursor.raw_id not in (None, str(raw.metadata().id)):
        claim.broken(f"it was made of the raw with table id {cursor.raw_id}, and this is {raw.metadata().id}")
    if cursor.head >= next_seqno(raw):
        claim.broken(f"it has seen records up to seqno {cursor.head:,}, and raw's last is {next_seqno(raw) - 1:,}")
    return claim


def _kept(newest: DeltaTable, claim: Claim) -> Iterator[DeltaTable]:
    """The versions before that one which can be read still: `zync maintain` takes log entries and files away.

    `claim` is broken where one has no log entry though an earlier one has, and says how many have not all their files.
    """
    readable, vacuumed = False, 0
    now = {file.path for file in data_files(newest, "seqno")}
    files, there = table_files(newest), dict[str, bool]()
    for version in range(newest.version()):
        try:
            old = DeltaTable(newest.table_uri, version=version)
        except DeltaError as error:
            if readable:
                claim.broken(f"version {version}: {first_line(error)}")
            continue
        readable = True
        gone = {file.path for file in data_files(old, "seqno")} - now
        asked = sorted(gone - there.keys())
        there |= {path: one.type == FileType.File for path, one in zip(asked, files.get_file_info(asked), strict=True)}
        if all(there[path] for path in gone):
            yield old
        else:
            vacuumed += 1
    if vacuumed:
        claim.text += f" (of {vacuumed:,} others files were taken away that are not needed now)"


def _named(prefix: str, claims: Iterator[Claim]) -> Iterator[Claim]:
    for claim in claims:
        if claim.violations:
            claim.text = prefix + claim.text
            yield claim


def _files(table: DeltaTable) -> Claim:
    return Claim(f"files of {table.table_uri} are there, with the rows and bounds that the log says")


def _read(table: DeltaTable, file: DataFile, columns: list[str], schema: pa.Schema) -> Any:
    """The file's rows of those columns; a string that says why, where they cannot be read."""
    try:
        return dataset(table, [file.path], schema).to_table(columns=columns)
    except (OSError, pa.ArrowException) as error:
        return f"{type(error).__name__}: {first_line(error)}"


def _sound(claim: Claim, file: DataFile, rows: Any) -> bool:
    """Whether the file could be read; `claim` notes that, and whether its rows and bounds are as the log says."""
    claim.count += 1
    if isinstance(rows, str):
        claim.broken(f"{file.path}: {rows}")
        return False
    bounds = pc.min_max(rows["seqno"]).as_py()
    said, found = (file.rows, file.lowest, file.highest), (len(rows), bounds["min"], bounds["max"])
    if said != found:
        claim.broken(f"{file.path}: log {said}, file {found}")
    return True


def _raw(table: DeltaTable) -> Iterator[Claim]:
    stored, files = positions(table), _files(table)
    start = first_seqno(table)
    seqnos = Claim("seqno rises by one" + (f" from {start:,} on, where raw was trimmed" if start > 1 else ""))
    offsets = Claim("offsets rise within each partition")
    clock = Claim("ingested never falls")
    agree = Claim("stored positions are beyond the rows")
    expected, newest = start, None
    last: dict[Source, int] = {}
    before = 0
    anew = {gap.source for gap in stored.gaps if gap.end < gap.start}
    for file in data_files(table, "seqno"):
        rows = _read(table, file, _OF_RAW, RAW_SCHEMA)
        if not _sound(files, file, rows) or not len(rows):
            continue
        numbers = rows["seqno"].to_numpy()
        early = int((numbers < start).sum())  # kept: of transactions that reach over the start
        if (np.diff(numbers[:early]) <= 0).any() or (early and numbers[0] <= before):
            seqnos.broken(f"{file.path}: seqnos do not rise")
        before = numbers[early - 1] if early else before
        wanted = np.concatenate([numbers[:early], np.arange(expected, expected + len(numbers) - early)])
        for index in np.flatnonzero(numbers != wanted)[:1]:
            seqnos.broken(f"{file.path}: {numbers[index]} stands where {wanted[index]} should")
        seqnos.count += len(numbers)
        expected = max(expected, int(numbers[-1]) + 1)
        stamps = rows["ingested"].cast(pa.int64()).to_numpy()
        clock.count += len(stamps)
        if (np.diff(stamps) < 0).any() or (newest is not None and stamps[0] < newest):
            clock.broken(file.path)
        newest = stamps[-1]
        offsets.count += len(numbers)
        for source, mine in _by_partition(rows["kafka"].combine_chunks()):
            if source not in anew and ((np.diff(mine) <= 0).any() or mine[0] <= last.get(source, -1)):
                offsets.broken(f"{file.path}: {source}, offsets {mine[0]} to {mine[-1]}")
            last[source] = int(mine[-1])
    if expected != stored.seqno:
        seqnos.broken(f"the log's next seqno is {stored.seqno}, the rows' is {expected}")
    for source, offset in last.items():
        agree.count += 1
        if source not in anew and stored.next.get(source, -1) <= offset:
            agree.broken(f"{source}: position {stored.next.get(source)}, but a row of offset {offset}")
    yield from (files, seqnos, offsets, clock, agree)


def _by_partition(places: Any) -> Iterator[tuple[Source, Any]]:
    topics, partitions = places.field("topic").dictionary_encode(), places.field("partition").to_numpy()
    offsets, codes = places.field("offset").to_numpy(), topics.indices.to_numpy()
    for code, topic in enumerate(topics.dictionary.to_pylist()):
        for partition in np.unique(partitions[codes == code]):
            yield Source(topic, int(partition)), offsets[(codes == code) & (partitions == partition)]


def _against_kafka(table: DeltaTable, config: Config) -> Claim:
    from zync.ingest.broker import Brokers  # noqa: PLC0415 - only where a broker is asked
    from zync.ingest.caught_up import made_anew  # noqa: PLC0415

    claim = Claim("positions are within what Kafka has")
    brokers = Brokers(config.kafka)
    there = brokers.topics()
    stored = positions(table).next
    ids = brokers.topic_ids({source.topic for source in stored if source.topic in there})
    for source, bounds in brokers.bounds([source for source in stored if source.topic in there]).items():
        claim.count += 1
        if not bounds.earliest <= stored[source] <= bounds.stable:
            claim.broken(
                f"{source}: raw's next offset is {stored[source]}, Kafka has {bounds.earliest} to {bounds.stable}"
            )
    for source in stored:
        if made_anew(stored_id(table, source), ids.get(source.topic)):
            claim.broken(f"{source}: the topic was made anew since raw read it")
    return claim


def _staging(table: DeltaTable, config: Config, read: dict[str, Any]) -> Iterator[Claim]:
    """The claims about one version of staging. `read`: its files' rows by path, kept from version to version."""
    files, there = _files(table), data_files(table, "seqno")
    for gone in read.keys() - {file.path for file in there}:
        del read[gone]
    for file in there:
        if file.path not in read:
            read[file.path] = _read(table, file, _OF_STAGING, STAGING_SCHEMA)
    sound = [read[file.path] for file in there if _sound(files, file, read[file.path])]
    yield files
    rows = pa.concat_tables([STAGING_SCHEMA.empty_table().select(_OF_STAGING), *sound])
    yield _syncs(table, rows)
    try:
        cursor = read_cursor(table)
    except (ZyncError, OSError) as error:
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


def describe(claims: list[Claim]) -> str:
    """What was proved, and what not, as lines for people."""
    lines = []
    for one in claims:
        lines.append(f"{'FAILED' if one.violations else 'ok    '} {one.text}: {one.count:,}")
        lines += [f"         {where}" for where in one.violations]
        if one.more:
            lines.append(f"         and {one.more:,} more")
    return "\n".join(lines)
