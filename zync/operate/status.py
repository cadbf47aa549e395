"""`zync status`: the progress of raw, staging and deliveries, and what is in flight or set aside. No Spark."""

from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from zync.config.model import Config
from zync.deliver.kafka.progress_topic import ProgressTopic
from zync.deliver.tables import snapshots
from zync.errors import ZyncError
from zync.kafka.admin import Brokers
from zync.kafka.partition import all_partitions
from zync.lake.files import data_files, dataset
from zync.lake.paths import locate
from zync.lake.table import open_table
from zync.raw.table import Positions, first_seqno, next_seqno, positions
from zync.staging.bookkeeping import Bookkeeping, read_bookkeeping
from zync.staging.held import awaits_turn, waited_for
from zync.staging.kinds import SET_ASIDE_KINDS, UNDECIDED_KINDS
from zync.staging.set_aside import read_set_aside
from zync.staging.table import STAGING_SCHEMA
from zync.text import amount


@dataclass(frozen=True)
class Status:
    """The state of both tables, of the deliveries, and raw's lag.

    Attributes:
        raw: head, start, Delta version and positions; None if the table does not exist.
        staging: newest sync, cursor, head, distance to raw and output offsets; None if the table does not exist.
        in_flight: counts of transactions in flight, expired and held, and the oldest of them.
        set_aside: number of records that were ever set aside, by kind.
        undecided: number of transactions (and records without one) that await a decision by `zync dlq`, by kind.
        gaps: ranges of offsets that were skipped; `to` is exclusive. Reading went back where `to` is less than `from`.
        delivered: the newest delivered sync and its distance to staging, by kind of delivery.
        delivered_unknown: why the delivery to Kafka could not be read, if so.
        lag: offsets that raw is behind Kafka, by topic; None if no broker is configured, or none answered.
        lag_unknown: why the lag could not be read, if so.
    """

    raw: dict[str, Any] | None = None
    staging: dict[str, Any] | None = None
    in_flight: dict[str, Any] = field(default_factory=dict)
    set_aside: dict[str, int] = field(default_factory=dict)
    undecided: dict[str, int] = field(default_factory=dict)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    delivered: dict[str, dict[str, Any]] = field(default_factory=dict)
    delivered_unknown: str | None = None
    lag: dict[str, int] | None = None
    lag_unknown: str | None = None


def status(raw: str, staging: str, config: Config) -> Status:
    """Reads the status of raw, staging and the deliveries, and raw's lag if `config` names a broker.

    Args:
        raw: The location of raw.
        staging: The location of staging.
        config: The config, which names the broker and the delivered tables.

    Example:
        >>> status = zync.status("lake/raw", "lake/staging", config)
        >>> status.in_flight["count"]
        1
    """
    raw_table, staging_table = open_table(raw), open_table(staging)
    stored = positions(raw_table) if raw_table else None
    bookkeeping = read_bookkeeping(staging_table, 0)
    set_aside = _count_set_aside(staging_table) if staging_table else {}
    lag, lag_error = _lag(stored, config) if stored else (None, None)
    # If the input's broker did not answer, the same broker is not asked again for the delivery's progress.
    has_own_kafka = "bootstrap.servers" in config.kafka_delivery.properties
    kafka_sync, kafka_error = _kafka_progress(bookkeeping, config) if has_own_kafka or not lag_error else (None, None)
    syncs = {"tables": _tables_progress(config), "kafka": kafka_sync}
    newest_sync = bookkeeping.cursor.sync
    return Status(
        raw=None
        if stored is None or raw_table is None
        else {
            "head": stored.seqno - 1,
            "start": first_seqno(raw_table),
            "version": raw_table.version(),
            "positions": {str(partition): offset for partition, offset in stored.next.items()},
        },
        staging=_staging(bookkeeping, next_seqno(raw_table) - 1 if raw_table else None) if staging_table else None,
        in_flight=_in_flight(bookkeeping),
        set_aside=set_aside,
        undecided=_count_undecided(staging_table) if set_aside.keys() & {*UNDECIDED_KINDS} else {},
        gaps=[{**gap.partition._asdict(), "from": gap.start, "to": gap.end} for gap in (stored.gaps if stored else ())],
        delivered={kind: {"sync": sync, "behind": newest_sync - sync} for kind, sync in syncs.items() if sync},
        delivered_unknown=kafka_error,
        lag=lag,
        lag_unknown=lag_error,
    )


def _tables_progress(config: Config) -> int | None:
    """Returns the newest sync in the delivered tables."""
    snapshot = snapshots.newest(f"{locate(snapshots.FOLDER, config.lake)}/{snapshots.NAME}")
    return snapshot.sync if snapshot else None


def _kafka_progress(bookkeeping: Bookkeeping, config: Config) -> tuple[int | None, str | None]:
    """Returns the newest sync of which at least a part was delivered to Kafka; or the error's text."""
    delivery, properties = config.deliver.kafka, config.kafka_to_deliver_to
    if delivery is None or not properties.get("bootstrap.servers"):
        return None, None

    try:
        brokers = Brokers(properties)
        if delivery.progress_topic not in brokers.topics():
            return None, None
        name = delivery.name_of(bookkeeping.cursor.raw_id)
        progress = ProgressTopic(properties, delivery.progress_topic, name, brokers).read(final=False)
    except ZyncError as error:
        return None, config.as_written(str(error))
    return (progress.sync if progress else None), None


def _staging(bookkeeping: Bookkeeping, raw_head: int | None) -> dict[str, Any]:
    cursor = bookkeeping.cursor
    return {
        "sync": cursor.sync,
        "cursor": cursor.seqno,
        "head": cursor.head,
        "behind_raw": None if raw_head is None else raw_head - cursor.head,
        "offsets": cursor.offsets,
    }


def _in_flight(bookkeeping: Bookkeeping) -> dict[str, Any]:
    in_flight = bookkeeping.in_flight
    summary: dict[str, Any] = {
        "count": pc.sum(pc.equal(in_flight["kind"], "pending")).as_py() or 0,
        "expired": pc.sum(pc.equal(in_flight["kind"], "expired")).as_py() or 0,
    }
    if in_flight.num_rows:
        (row,) = in_flight.sort_by("seqno").slice(0, 1).to_pylist()
        summary["oldest"] = {"txn": row["txn"], "seqno": row["seqno"], "since": row["since"], "records": row["count"]}
    held_count = pc.sum(awaits_turn(in_flight)).as_py()
    if held_count and (waits_for := waited_for(in_flight)):
        summary["held"] = {"count": held_count, "waits_for": waits_for}
    return summary


def _count_set_aside(table: DeltaTable) -> dict[str, int]:
    """Counts the records that were ever set aside, by kind."""
    files = data_files(table, "seqno")
    if not files:
        return {}
    rows = dataset(table, files, STAGING_SCHEMA).to_table(
        columns=["kind", "count"], filter=ds.field("kind").isin(list(SET_ASIDE_KINDS))
    )
    counts = {row["kind"]: row["count_sum"] for row in rows.group_by("kind").aggregate([("count", "sum")]).to_pylist()}
    return {kind: counts[kind] for kind in SET_ASIDE_KINDS if kind in counts}


def _count_undecided(table: Any) -> dict[str, int]:
    """Counts the set-aside transactions that await a decision, by kind."""
    set_aside = read_set_aside(table)
    return {"quarantined": sum(map(len, set_aside.quarantined.values())), "late": len(set_aside.late)}


def _lag(stored: Positions, config: Config) -> tuple[dict[str, int] | None, str | None]:
    """Returns the offsets between raw's positions and the ends of Kafka's partitions by topic; or the error's text."""
    if not config.kafka.get("bootstrap.servers"):
        return None, None

    try:
        brokers = Brokers(config.kafka)
        kafka_topics = brokers.topics()
        regexes = [topic for topic in config.topics if topic.startswith("^")]
        configured = [topic for topic in config.topics if topic in kafka_topics]
        already_read = [topic for topic in {partition.topic for partition in stored.next} if topic in kafka_topics]
        partition_counts = brokers.matching({*regexes, *configured, *already_read})
        partitions = all_partitions(partition_counts)
        bounds = brokers.bounds(partitions)
    except ZyncError as error:
        return None, config.as_written(str(error))
    lag: dict[str, int] = {}
    for partition, limits in sorted(bounds.items()):
        behind = max(0, limits.stable - stored.next.get(partition, limits.earliest))
        lag[partition.topic] = lag.get(partition.topic, 0) + behind
    return lag, None


def describe(status: Status) -> str:
    """Returns the status as lines for people."""
    lines = []
    if status.raw is None:
        lines.append("raw       none yet: `zync sync-from kafka raw` makes it")
    else:
        start = f", from seqno {status.raw['start']:,} on" if status.raw["start"] > 1 else ""
        lines.append(f"raw       head {status.raw['head']:,}, version {status.raw['version']}{start}")
        lines += [
            f"          {partition} next offset {offset:,}" for partition, offset in status.raw["positions"].items()
        ]
    if status.staging is None:
        lines.append("staging   none yet: `zync sync raw staging` makes it")
    else:
        staging = status.staging
        behind = "" if not staging["behind_raw"] else f", {amount(staging['behind_raw'], 'record')} behind raw"
        lines.append(
            f"staging   sync {staging['sync']}, cursor {staging['cursor']:,}, head {staging['head']:,}{behind}"
        )
        lines += [f"          {topic} next offset {offset:,}" for topic, offset in staging["offsets"].items()]
    in_flight = status.in_flight
    oldest = in_flight.get("oldest")
    since = f"; oldest {oldest['txn']}, seqno {oldest['seqno']:,}, since {oldest['since']:%F %T}" if oldest else ""
    lines.append(f"in flight {in_flight['count']:,}, expired {in_flight['expired']:,}{since}")
    if held_back := in_flight.get("held"):
        lines.append(f"          {held_back['count']:,} whole, behind {held_back['waits_for']} (order: commit)")
    set_aside = ", ".join(f"{kind} {amount(count, 'record')}" for kind, count in status.set_aside.items())
    undecided = ", ".join(f"{amount(count, 'transaction')} {kind}" for kind, count in status.undecided.items() if count)
    to_decide = f"; to decide about (`zync dlq list`): {undecided or 'none'}" if status.undecided else ""
    lines.append(f"set aside {set_aside or 'none'}{to_decide}")
    gaps = ", ".join(
        f"{gap['topic']}/{gap['partition']} offsets {gap['from']} to {gap['to'] - 1}"
        if gap["to"] > gap["from"]
        else f"{gap['topic']}/{gap['partition']} went back from offset {gap['from']} to {gap['to']}"
        for gap in status.gaps
    )
    lines.append(f"gaps      {gaps or 'none'}")
    for kind, progress in status.delivered.items():
        behind = f", {amount(progress['behind'], 'sync')} behind staging" if progress["behind"] else ""
        lines.append(f"to {kind:6} through sync {progress['sync']:,}{behind}")
    if status.delivered_unknown:
        lines.append(f"to kafka  unknown: {status.delivered_unknown}")
    if status.lag is not None:
        lag = ", ".join(f"{topic} {behind:,}" for topic, behind in status.lag.items())
        lines.append(f"lag       {lag or 'no topics yet'}")
    elif status.lag_unknown:
        lines.append(f"lag       unknown: {status.lag_unknown}")
    return "\n".join(lines)


def as_dict(status: Status) -> dict[str, Any]:
    """Returns the status for JSON output, without empty `…_unknown` fields."""
    return {key: value for key, value in asdict(status).items() if value or not key.endswith("_unknown")}
