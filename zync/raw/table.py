"""The table `raw`: its columns, and the application ids under which its commits store positions (`txn` actions).

zync/seqno                            the next seqno
zync/ingested                         the newest `ingested`, in microseconds
zync/start                            the first seqno from which raw has all records, once `zync maintain` removed some
zync/trimmed                          the version of raw at which it removed them
zync/<topic>/<partition>              the next offset to read
zync/<topic>/<partition>/id           the topic's id, as 63 bits of it
zync/<topic>/<partition>/epoch        the leader epoch of the last record below the position; -1 where it is unknown
zync/<topic>/<partition>/epoch/behind how many offsets there are between that record and the position: transactions'
                                      markers, and records of aborted transactions
zync/<topic>/<partition>/gap/<from>/<seqno>
                                      the operator skipped the offsets from <from> up to this value (exclusive), before
                                      that seqno
"""

import re
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from zync.config.model import RESERVED_TOPIC
from zync.errors import ZyncError
from zync.kafka.partition import LastRecord, Partition
from zync.lake.delta_log import app_transactions
from zync.lake.files import data_files, dataset
from zync.lake.paths import table_name
from zync.lake.ranges import SeqnoRanges
from zync.lake.table import ensure_table, existing_table, of_kind
from zync.lake.types import TIMESTAMP
from zync.raw.batch import RECORD_SCHEMA, Slice, last_offsets

DECISIONS = Partition(RESERVED_TOPIC, 0)
"""The partition of operators' decisions in raw: see `zync.operate.decide`."""
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


def position_name(partition: Partition) -> str:
    """Returns the application id under which raw stores a partition's position."""
    topic, number = partition
    return f"zync/{topic}/{number}"


def ensure_raw(location: str) -> DeltaTable:
    """Opens the raw table, and creates it if it does not exist.

    Raises:
        UsageError: The location has another table.
    """
    table = ensure_table(location, RAW_SCHEMA, "zync raw: Kafka records verbatim, one a row, in order of seqno")
    return of_kind(table, RAW_SCHEMA, "raw")


def existing_raw(location: str) -> DeltaTable:
    """Opens the raw table at its newest version.

    Raises:
        UsageError: The location has no table, or another table.
    """
    return of_kind(existing_table(location, made_by(location)), RAW_SCHEMA, "raw")


def made_by(location: str) -> str:
    """Returns the command that creates the raw table at a location, for messages."""
    return f"zync sync-from kafka {table_name(location)}"


def next_seqno(table: DeltaTable) -> int:
    """Returns the seqno of the next record: 1 for an empty raw."""
    return table.transaction_version(SEQNO) or 1


def first_seqno(table: DeltaTable) -> int:
    """Returns the first seqno from which raw has all records.

    Before it raw has only records of transactions that reach over it (`zync.operate.trim`).
    """
    return table.transaction_version(START) or 1


def trimmed(table: DeltaTable, above: int, upto: int) -> SeqnoRanges:
    """Returns the seqnos in `above` < seqno <= `upto` whose records `zync maintain` removed."""
    end = min(upto + 1, first_seqno(table))
    if above + 1 >= end:
        return SeqnoRanges()
    files = data_files(table, "seqno", above=above, upto=end - 1)
    seqnos = np.empty(0, np.int64)
    if files:
        seqnos = np.sort(dataset(table, files, RAW_SCHEMA).to_table(columns=["seqno"])["seqno"].to_numpy())
    seqnos = np.concatenate([[above], seqnos[(seqnos > above) & (seqnos < end)], [end]])
    holes = np.flatnonzero(np.diff(seqnos) > 1)
    return SeqnoRanges(seqnos[holes] + 1, seqnos[holes + 1] - 1)


def stored_position(table: DeltaTable, partition: Partition) -> int | None:
    """Returns the next offset to read of a partition; None if raw has none."""
    return table.transaction_version(position_name(partition))


def stored_id(table: DeltaTable, partition: Partition) -> int | None:
    """Returns the id of the topic to which the stored position belongs; None if raw has none."""
    return table.transaction_version(f"{position_name(partition)}/id")


def stored_last(table: DeltaTable, partition: Partition, position: int | None) -> LastRecord | None:
    """Returns the last record below the stored `position`; None if raw does not have its leader's epoch."""
    name = position_name(partition)
    epoch = None if position is None else table.transaction_version(f"{name}/epoch")
    if position is None or epoch is None or epoch < 0:
        return None
    return LastRecord(position - 1 - (table.transaction_version(f"{name}/epoch/behind") or 0), epoch)


def last_record_transactions(partition: Partition, part: Slice) -> dict[str, int]:
    """Returns the `txn` actions that store a slice's last record, without values that raw stores already.

    Raw's values change only with the position, so the slice has them: a commit does not read them from the log.
    """
    name, last, before = f"{position_name(partition)}/epoch", part.last, part.begin_last
    if last is None:
        return {} if before is None else {name: -1}
    behind = part.next - 1 - last.offset
    if before is None or part.begin is None:
        return {name: last.epoch, f"{name}/behind": behind}
    changed = {name: last.epoch} if last.epoch != before.epoch else {}
    return changed | ({f"{name}/behind": behind} if behind != part.begin - 1 - before.offset else {})


@dataclass(frozen=True)
class Gap:
    """Offsets `start` … `end - 1` of a partition that an operator skipped before the record of that `seqno`.

    If `end` < `start`, reading went back, because the topic was recreated or by `--force`.
    """

    partition: Partition
    start: int
    end: int
    seqno: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Positions:
    """The positions, the next seqno and the gaps that raw's log stores."""

    seqno: int
    next: dict[Partition, int] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()


def check_newest(table: DeltaTable) -> None:
    """Checks that raw's newest rows are below its positions.

    Raises:
        ZyncError: They are not, as after an entry of the log was edited or removed.
    """
    files, stored = data_files(table, "seqno"), positions(table)
    if not files:
        return
    (rows,) = dataset(table, files[-1:], RAW_SCHEMA).to_table(columns=["kafka"]).combine_chunks().to_batches()
    went_back = {gap.partition for gap in stored.gaps if gap.end < gap.start}
    contradictions = [
        f"{partition} has offset {last}, and the next to read is {stored.next.get(partition, 0)}"
        for partition, last in last_offsets(rows).items()
        if partition not in went_back and last >= stored.next.get(partition, 0)
    ]
    if files[-1].highest != stored.seqno - 1:
        contradictions.append(f"the last seqno is {files[-1].highest}, and the next is {stored.seqno}")
    if contradictions:
        msg = (
            f"{table.table_uri} does not agree with itself: {contradictions[0]}. Was an entry of its log edited or cut "
            "off? Put it back from a copy; `zync verify` says more. Nothing was changed"
        )
        raise ZyncError(msg)


def positions(table: DeltaTable) -> Positions:
    """Returns raw's stored positions, its next seqno, and its gaps."""
    next_offsets, gaps, seqno = dict[Partition, int](), list[Gap](), 1
    for name, version in app_transactions(table).items():
        if name == SEQNO:
            seqno = version
        elif match := re.fullmatch(r"zync/(.+)/(\d+)/gap/(\d+)/(\d+)", name, re.DOTALL):
            gaps.append(Gap(Partition(match[1], int(match[2])), int(match[3]), version, int(match[4])))
        elif match := re.fullmatch(r"zync/(.+)/(\d+)", name, re.DOTALL):
            next_offsets[Partition(match[1], int(match[2]))] = version
    return Positions(
        seqno,
        dict(sorted(next_offsets.items())),
        tuple(sorted(gaps, key=lambda gap: (gap.partition, gap.start, gap.end))),
    )
