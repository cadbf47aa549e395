"""`zync status`: how far raw and staging are, what is in flight and set aside. Without starting Spark."""

from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

from zync.config.model import Config
from zync.deliver.kafka.progress_topic import ProgressTopic
from zync.deliver.tables import snapshots
from zync.errors import ZyncError
from zync.kafka.admin import Brokers
from zync.kafka.partition import Source
from zync.lake.files import data_files, dataset
from zync.lake.paths import locate
from zync.lake.table import open_table
from zync.raw.table import Positions, first_seqno, next_seqno, positions
from zync.staging.bookkeeping import Known, read_known
from zync.staging.held import held, waited_for
from zync.staging.set_aside import read_set_aside
from zync.staging.table import STAGING_SCHEMA
from zync.text import amount

ASIDE = ("late", "duplicate", "quarantined", "discarded", "ignored")


@dataclass(frozen=True)
class Status:
    """What `zync status` tells; None where there is no such table yet, or no broker is configured or answers.

    set_aside: records, ever, by kind. undecided: transactions (and records by themselves) that `zync dlq` is to decide.
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
    """The state of both tables, and how far raw is behind Kafka where `config` names a broker."""
    raw_table, staging_table = open_table(raw), open_table(staging)
    at = positions(raw_table) if raw_table else None
    known = read_known(staging_table, 0)
    aside = _set_aside(staging_table) if staging_table else {}
    lag, why = _lag(at, config) if at else (None, None)
    own_kafka = "bootstrap.servers" in config.kafka_delivery.properties
    to_kafka, why_not = _kafka(known, config) if own_kafka or not why else (None, None)
    delivered = {"tables": _tables(config), "kafka": to_kafka}
    return Status(
        raw=None
        if at is None or raw_table is None
        else {
            "head": at.seqno - 1,
            "start": first_seqno(raw_table),
            "version": raw_table.version(),
            "positions": {str(source): offset for source, offset in at.next.items()},
        },
        staging=_staging(known, next_seqno(raw_table) - 1 if raw_table else None) if staging_table else None,
        in_flight=_in_flight(known),
        set_aside=aside,
        undecided=_undecided(staging_table) if aside.keys() & {"quarantined", "late"} else {},
        gaps=[
            {"topic": one.source.topic, "partition": one.source.partition, "from": one.start, "to": one.end}
            for one in (at.gaps if at else ())
        ],
        delivered={to: {"sync": sync, "behind": known.cursor.sync - sync} for to, sync in delivered.items() if sync},
        delivered_unknown=why_not,
        lag=lag,
        lag_unknown=why,
    )


def _tables(config: Config) -> int | None:
    """The sync through which the delivered tables are."""
    found = snapshots.newest(f"{locate(snapshots.FOLDER, config.lake)}/{snapshots.NAME}")
    return found.sync if found else None


def _kafka(known: Known, config: Config) -> tuple[int | None, str | None]:
    """The sync through which, in part at least, all is in the Kafka that the config says to deliver to; or why not."""
    said, properties = config.deliver.kafka, config.kafka_to_deliver_to
    if said is None or not properties.get("bootstrap.servers"):
        return None, None

    try:
        brokers = Brokers(properties)
        if said.progress_topic not in brokers.topics():
            return None, None
        name = said.name_of(known.cursor.raw_id)
        found = ProgressTopic(properties, said.progress_topic, name, brokers).read(final=False)
    except ZyncError as error:
        return None, config.as_written(str(error))
    return (found.sync if found else None), None


def _staging(known: Known, raw_head: int | None) -> dict[str, Any]:
    cursor = known.cursor
    return {
        "sync": cursor.sync,
        "cursor": cursor.seqno,
        "head": cursor.head,
        "behind_raw": None if raw_head is None else raw_head - cursor.head,
        "offsets": cursor.offsets,
    }


def _in_flight(known: Known) -> dict[str, Any]:
    kinds = known.in_flight["kind"]
    oldest = known.in_flight.sort_by("seqno").slice(0, 1).to_pylist()
    found: dict[str, Any] = {
        "count": pc.sum(pc.equal(kinds, "pending")).as_py() or 0,
        "expired": pc.sum(pc.equal(kinds, "expired")).as_py() or 0,
    }
    if oldest:
        one = oldest[0]
        found["oldest"] = {"txn": one["txn"], "seqno": one["seqno"], "since": one["since"], "records": one["count"]}
    waiting = pc.sum(held(known.in_flight)).as_py()
    if waiting and (awaited := waited_for(known.in_flight)):
        found["held"] = {"count": waiting, "waits_for": awaited}
    return found


def _set_aside(table: Any) -> dict[str, int]:
    """Records set aside, ever, by kind."""
    paths = [file.path for file in data_files(table, "seqno")]
    if not paths:
        return {}
    rows = dataset(table, paths, STAGING_SCHEMA).to_table(
        columns=["kind", "count"], filter=ds.field("kind").isin(list(ASIDE))
    )
    counted = rows.group_by("kind").aggregate([("count", "sum")]).to_pylist()
    return {one["kind"]: one["count_sum"] for one in sorted(counted, key=lambda one: ASIDE.index(one["kind"]))}


def _undecided(table: Any) -> dict[str, int]:
    found = read_set_aside(table)
    return {"quarantined": sum(map(len, found.quarantined.values())), "late": len(found.late)}


def _lag(at: Positions, config: Config) -> tuple[dict[str, int] | None, str | None]:
    """Offsets between raw's positions and the ends of Kafka's partitions, by topic."""
    if not config.kafka.get("bootstrap.servers"):
        return None, None

    try:
        brokers = Brokers(config.kafka)
        there = brokers.topics()
        regexes = [topic for topic in config.topics if topic.startswith("^")]
        named = [topic for topic in config.topics if topic in there]
        known = [topic for topic in {source.topic for source in at.next} if topic in there]
        wanted = brokers.matching({*regexes, *named, *known})
        sources = [Source(topic, partition) for topic, count in wanted.items() for partition in range(count)]
        bounds = brokers.bounds(sources)
    except ZyncError as error:
        return None, config.as_written(str(error))
    lag: dict[str, int] = {}
    for source, one in sorted(bounds.items()):
        behind = max(0, one.stable - at.next.get(source, one.earliest))
        lag[source.topic] = lag.get(source.topic, 0) + behind
    return lag, None


def describe(status: Status) -> str:
    """The status as lines for people."""
    lines = []
    if status.raw is None:
        lines.append("raw       none yet: `zync sync-from kafka raw` makes it")
    else:
        start = f", from seqno {status.raw['start']:,} on" if status.raw["start"] > 1 else ""
        lines.append(f"raw       head {status.raw['head']:,}, version {status.raw['version']}{start}")
        lines += [f"          {source} next offset {at:,}" for source, at in status.raw["positions"].items()]
    if status.staging is None:
        lines.append("staging   none yet: `zync sync raw staging` makes it")
    else:
        one = status.staging
        behind = "" if not one["behind_raw"] else f", {amount(one['behind_raw'], 'record')} behind raw"
        lines.append(f"staging   sync {one['sync']}, cursor {one['cursor']:,}, head {one['head']:,}{behind}")
        lines += [f"          {topic} next offset {at:,}" for topic, at in one["offsets"].items()]
    flying = status.in_flight
    oldest = flying.get("oldest")
    since = f"; oldest {oldest['txn']}, seqno {oldest['seqno']:,}, since {oldest['since']:%F %T}" if oldest else ""
    lines.append(f"in flight {flying['count']:,}, expired {flying['expired']:,}{since}")
    if waiting := flying.get("held"):
        lines.append(f"          {waiting['count']:,} whole, behind {waiting['waits_for']} (order: commit)")
    aside = ", ".join(f"{kind} {amount(count, 'record')}" for kind, count in status.set_aside.items())
    undecided = ", ".join(f"{amount(count, 'transaction')} {kind}" for kind, count in status.undecided.items() if count)
    to_decide = f"; to decide about (`zync dlq list`): {undecided or 'none'}" if status.undecided else ""
    lines.append(f"set aside {aside or 'none'}{to_decide}")
    gaps = ", ".join(
        f"{one['topic']}/{one['partition']} offsets {one['from']} to {one['to'] - 1}"
        if one["to"] > one["from"]
        else f"{one['topic']}/{one['partition']} went back from offset {one['from']} to {one['to']}"
        for one in status.gaps
    )
    lines.append(f"gaps      {gaps or 'none'}")
    for to, one in status.delivered.items():
        behind = f", {amount(one['behind'], 'sync')} behind staging" if one["behind"] else ""
        lines.append(f"to {to:6} through sync {one['sync']:,}{behind}")
    if status.delivered_unknown:
        lines.append(f"to kafka  unknown: {status.delivered_unknown}")
    if status.lag is not None:
        lag = ", ".join(f"{topic} {behind:,}" for topic, behind in status.lag.items())
        lines.append(f"lag       {lag or 'no topics yet'}")
    elif status.lag_unknown:
        lines.append(f"lag       unknown: {status.lag_unknown}")
    return "\n".join(lines)


def as_dict(status: Status) -> dict[str, Any]:
    """The status for programs."""
    return {key: value for key, value in asdict(status).items() if value or not key.endswith("_unknown")}
