"""The table `raw`: its columns, and the names under which its commits store positions (`txn` actions).

zync/seqno                            the next seqno
zync/ingested                         the newest `ingested`, in microseconds
zync/start                            the seqno from which on all records are there, once `zync maintain` took some away
zync/trimmed                          the version of raw at which that was
zync/<topic>/<partition>              the next offset to read
zync/<topic>/<partition>/id           the topic's id, as 63 bits of it
zync/<topic>/<partition>/epoch        the leader epoch of the last record below the position; -1 where it is unknown
zync/<topic>/<partition>/epoch/behind how many offsets there are between that record and the position: transactions'
                                      markers, and records of aborted transactions
zync/<topic>/<partition>/gap/<from>/<seqno>
                                      offsets from there up to this one were let go by an operator, before that seqno
"""

import re
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from zync.config.model import RESERVED_TOPIC
from zync.errors import ZyncError
from zync.kafka.partition import LastRecord, Source
from zync.lake.files import data_files, dataset
from zync.lake.paths import table_name
from zync.lake.table import app_transactions, ensure_table, existing_table, of_kind
from zync.lake.types import TIMESTAMP
from zync.raw.batch import RECORD_SCHEMA, Slice, last_offsets

DECISIONS = Source(RESERVED_TOPIC, 0)
"""Where operators' decisions are in raw: see `zync.operate.decide`."""
SEQNO = "zync/seqno"
INGESTED = "zync/ingested"
START = "zync/start"
TRIMMED = "zync/trimmed"

RAW_SCHEMA = pa.schema(
    [
        pa.field("seqno", pa.int64()),
        RECORD_SCHEMA.field("kafka"),
        pa.field("ingested", TIMESTAMP),
        *(RECORD_SCHEMA.field(name) for name in ("key", "value", "headers")),
    ]
)


def position_name(source: Source) -> str:
    """The application id under which raw stores that partition's position."""
    return f"zync/{source.topic}/{source.partition}"


def ensure_raw(location: str) -> DeltaTable:
    """The raw table, made now if there was none; UsageError where there is another table."""
    table = ensure_table(location, RAW_SCHEMA, "zync raw: Kafka records verbatim, one a row, in order of seqno")
    return of_kind(table, RAW_SCHEMA, "raw")


def existing_raw(location: str) -> DeltaTable:
    """The raw table at its newest version; UsageError where there is none, or another table."""
    return of_kind(existing_table(location, made_by(location)), RAW_SCHEMA, "raw")


def made_by(location: str) -> str:
    """The command that makes the raw table there."""
    return f"zync sync-from kafka {table_name(location)}"


def next_seqno(table: DeltaTable) -> int:
    """The seqno that the next record gets: 1 for an empty raw."""
    return table.transaction_version(SEQNO) or 1


def first_seqno(table: DeltaTable) -> int:
    """From there on all records are in raw; before it, those of transactions that reach over it (`zync.trim`)."""
    return table.transaction_version(START) or 1


def trimmed(table: DeltaTable, above: int, upto: int) -> list[tuple[int, int]]:
    """Ranges of seqnos in `above` < seqno <= `upto` whose records were taken away."""
    end = min(upto + 1, first_seqno(table))
    if above + 1 >= end:
        return []
    paths = [file.path for file in data_files(table, "seqno", above=above, upto=end - 1)]
    there = np.empty(0, np.int64)
    if paths:
        there = np.sort(dataset(table, paths, RAW_SCHEMA).to_table(columns=["seqno"])["seqno"].to_numpy())
    there = np.concatenate([[above], there[(there > above) & (there < end)], [end]])
    holes = np.flatnonzero(np.diff(there) > 1)
    return list(zip((there[holes] + 1).tolist(), (there[holes + 1] - 1).tolist(), strict=True))


def stored_position(table: DeltaTable, source: Source) -> int | None:
    """The next offset to read of that partition; None where raw has none."""
    return table.transaction_version(position_name(source))


def stored_id(table: DeltaTable, source: Source) -> int | None:
    """The id of the topic that the stored position belongs to; None where raw has none."""
    return table.transaction_version(f"{position_name(source)}/id")


def stored_last(table: DeltaTable, source: Source, position: int | None) -> LastRecord | None:
    """The last record below the stored `position`; None where raw does not know its leader's epoch."""
    name = position_name(source)
    epoch = None if position is None else table.transaction_version(f"{name}/epoch")
    if position is None or epoch is None or epoch < 0:
        return None
    return LastRecord(position - 1 - (table.transaction_version(f"{name}/epoch/behind") or 0), epoch)


def last_record_transactions(source: Source, one: Slice) -> dict[str, int]:
    """The `txn` actions that store the slice's last record with its position, where they are not stored already.

    What is stored changes with the position alone, so the slice knows it: a commit does not look it up.
    """
    name, now, before = f"{position_name(source)}/epoch", one.last, one.begin_last
    if now is None:
        return {} if before is None else {name: -1}
    behind = one.next - 1 - now.offset
    if before is None or one.begin is None:
        return {name: now.epoch, f"{name}/behind": behind}
    changed = {name: now.epoch} if now.epoch != before.epoch else {}
    return changed | ({f"{name}/behind": behind} if behind != one.begin - 1 - before.offset else {})


@dataclass(frozen=True)
class Gap:
    """Offsets `start` … `end - 1` of a partition that an operator let go, before the record of that `seqno`.

    `end` < `start`: reading went back, for the topic was made anew, or by force.
    """

    source: Source
    start: int
    end: int
    seqno: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Positions:
    """All that raw's log stores beside rows."""

    seqno: int
    next: dict[Source, int] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()


def check_newest(table: DeltaTable) -> None:
    """Raises ZyncError where raw's newest rows are not below its positions, as when its log was edited or cut off."""
    files, stored = data_files(table, "seqno"), positions(table)
    if not files:
        return
    (rows,) = dataset(table, [files[-1].path], RAW_SCHEMA).to_table(columns=["kafka"]).combine_chunks().to_batches()
    back = {gap.source for gap in stored.gaps if gap.end < gap.start}
    wrong = [
        f"{source} has offset {last}, and the next to read is {stored.next.get(source, 0)}"
        for source, last in last_offsets(rows).items()
        if source not in back and last >= stored.next.get(source, 0)
    ]
    if files[-1].highest != stored.seqno - 1:
        wrong.append(f"the last seqno is {files[-1].highest}, and the next is {stored.seqno}")
    if wrong:
        msg = (
            f"{table.table_uri} does not agree with itself: {wrong[0]}. Was an entry of its log edited or cut off? "
            "Put it back from a copy; `zync verify` says more. Nothing was changed"
        )
        raise ZyncError(msg)


def positions(table: DeltaTable) -> Positions:
    """Raw's stored positions, next seqno, and the gaps on record."""
    found, gaps, seqno = dict[Source, int](), list[Gap](), 1
    for name, version in app_transactions(table).items():
        if name == SEQNO:
            seqno = version
        elif match := re.fullmatch(r"zync/(.+)/(\d+)/gap/(\d+)/(\d+)", name, re.DOTALL):
            gaps.append(Gap(Source(match[1], int(match[2])), int(match[3]), version, int(match[4])))
        elif match := re.fullmatch(r"zync/(.+)/(\d+)", name, re.DOTALL):
            found[Source(match[1], int(match[2]))] = version
    return Positions(
        seqno, dict(sorted(found.items())), tuple(sorted(gaps, key=lambda gap: (gap.source, gap.start, gap.end)))
    )
