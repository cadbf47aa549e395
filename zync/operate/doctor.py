"""`zync doctor`: what in a connector's config, and in Kafka's topics, will hurt transactions on their way to zync.

Each check is a function of the configs alone, so that it can be tried without a connector or a broker.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from zync.config.model import Config
from zync.config.topics import compile_regex
from zync.config.units import duration_text

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """Something that was seen, and what to do about it.

    `severity`: `error` where data is lost, wrong or never complete; `warning` where that happens under circumstances
    that do occur; `note` where it may be as wanted. `about`: the connector, or a topic.
    """

    severity: Severity
    about: str
    seen: str
    do: str


@dataclass(frozen=True)
class TopicSettings:
    """A topic as Kafka has it: its number of partitions, and its properties (`cleanup.policy` …) by name."""

    partitions: int
    properties: Mapping[str, str] = field(default_factory=dict)


Connector = Mapping[str, str]
"""A connector's config: its properties by name."""
Topics = Mapping[str, TopicSettings]


def diagnose(connector: Connector | None, topics: Topics | None, config: Config) -> list[Finding]:
    """All there is to say, errors first; None for the connector or the topics where they were not looked at."""
    found: list[Finding] = []
    if connector is not None:
        found += (one for check in _OF_CONNECTORS for one in check(connector, config))
    if topics is not None:
        found += (one for check in _OF_TOPICS for one in check(topics, config))
    order = ("error", "warning", "note")
    return sorted(found, key=lambda one: order.index(one.severity))


def hurts(findings: list[Finding]) -> bool:
    """Whether there is more among them than notes."""
    return any(one.severity != "note" for one in findings)


def describe(findings: list[Finding], looked_at: str) -> str:
    """A line for each finding; `looked_at`: what was looked at, for where there is none."""
    lines = [f"{one.severity:7} {one.about}: {one.seen}; {one.do}" for one in findings]
    return "\n".join(lines) or f"nothing in {looked_at} will hurt"


def read_topics(config: Config, there: Mapping[str, int]) -> list[str]:
    """Those topics that the config reads, of those that are `there`."""
    regexes = [compile_regex(one) for one in config.topics if one.startswith("^")]
    return sorted(one for one in there if one in config.topics or any(regex.search(one) for regex in regexes))


# ------------------------------------------------------------------------------------------------------- connectors


def _metadata(connector: Connector, config: Config) -> Iterator[Finding]:
    """Transactions are known by the envelope's `transaction` and by BEGIN and END, of which the connector has none."""
    if not _on(connector, "provide.transaction.metadata"):
        yield Finding(
            "error" if config.transactions.preset or not config.topics else "note",
            _name(connector),
            "provide.transaction.metadata is not true: rows do not say which transaction they belong to, and there is "
            "no END, so none is ever complete",
            "set provide.transaction.metadata=true",
        )
        return
    prefix, topics = connector.get("topic.prefix"), config.transactions.end_topics
    if prefix is None or not topics:
        return
    sent_to = connector.get("topic.delimiter", ".").join((prefix, connector.get("topic.transaction", "transaction")))
    if sent_to not in topics:
        several = f"connectors in the config have {', '.join(topics)}"
        read = several if config.transactions.connectors else f"topic in the config is {topics[0]}"
        yield Finding(
            "error",
            _name(connector),
            f"it sends BEGIN and END to {sent_to}, and transactions.{read}",
            "let both name one topic (topic.prefix, topic.delimiter and topic.transaction make the connector's)",
        )


def _transforms(connector: Connector, _config: Config) -> Iterator[Finding]:
    """Transforms run after the connector has counted the rows of a transaction, and see each row by itself."""
    for name in _listed(connector, "transforms"):
        kind = connector.get(f"transforms.{name}.type", "")
        short = kind.rpartition(".")[2]
        severity, seen, do = next(
            (what for begin, what in _TRANSFORMS if short.startswith(begin)),
            ("note", "zync does not know what it does", "see that envelopes, headers and topics stay as they are"),
        )
        if seen:
            yield Finding(severity, _name(connector), f"transform {name} ({short}): {seen}", do)


_FLATTENS: tuple[Severity, str, str] = (
    "error",
    "rows come without Debezium's envelope, so that zync sets them aside",
    "take it out: the preset's views have the columns `row`, `before` and `after`",
)
_DROPS: tuple[Severity, str, str] = (
    "error",
    "it drops rows that END has counted, so that their transactions never complete",
    "take it out, and leave rows out in rules; or leave tables out by table.include.list; or name them in "
    "transactions.uncounted",
)
_ROUTES: tuple[Severity, str, str] = (
    "warning",
    "rows go to topics of other names, and the preset reads those that begin with the connector's prefix",
    "take it out, name the new topics in transactions.tables, or see that they begin with the prefix",
)
_FINE: tuple[Severity, str, str] = ("note", "", "")
_TRANSFORMS: tuple[tuple[str, tuple[Severity, str, str]], ...] = (
    ("ExtractNewRecordState", _FLATTENS),
    ("ExtractNewDocumentState", _FLATTENS),
    ("ExtractField$Value", _FLATTENS),
    ("Flatten$Value", _FLATTENS),
    ("HoistField$Value", _FLATTENS),
    (
        "ReplaceField$Value",
        (
            "warning",
            "it takes fields of Debezium's envelope away, or renames them",
            "let it keep before, after, source, op, ts_ms and transaction; or take it out, and choose columns in rules",
        ),
    ),
    ("EventRouter", _FLATTENS),
    ("MongoEventRouter", _FLATTENS),
    ("Filter", _DROPS),
    ("ByLogicalTableRouter", _ROUTES),
    ("ContentBasedRouter", _ROUTES),
    ("RegexRouter", _ROUTES),
    ("TimestampRouter", _ROUTES),
    ("ExtractTopic", _ROUTES),
    (
        "DropHeaders",
        (
            "warning",
            "it may drop the headers by which zync tells rows that are sent again after a restart, and changed keys",
            "let it keep __debezium.context.runId, __debezium.newkey and __debezium.oldkey",
        ),
    ),
    ("ExtractChangedRecordState", _FINE),
    ("PartitionRouting", _FINE),
    ("InsertHeader", _FINE),
    ("HeaderFrom", _FINE),
    ("SetSchemaMetadata", _FINE),
)
"""How the names of transforms' classes begin, and what these do to zync."""


def _skipped(connector: Connector, _config: Config) -> Iterator[Finding]:
    """Operations that are not sent are not counted either: transactions complete without them."""
    given = connector.get("skipped.operations")
    skipped = {"t"} if given is None else {one.strip() for one in given.split(",")} - {"none", ""}
    names = {"c": "inserts", "u": "updates", "d": "deletes"}
    if lost := [text for key, text in names.items() if key in skipped]:
        yield Finding(
            "error",
            _name(connector),
            f"skipped.operations is {given}: {', '.join(lost)} never come, and nothing tells",
            "set skipped.operations=none",
        )
    if "t" in skipped and "mongodb" not in connector.get("connector.class", ""):
        yield Finding(
            "note" if given is None else "warning",
            _name(connector),
            f"skipped.operations is {given or 't, its default'}: TRUNCATE does not come, so that tables keep the rows",
            "set skipped.operations=none if tables are truncated",
        )


def _idempotence(connector: Connector, _config: Config) -> Iterator[Finding]:
    """Connect's worker turns the idempotence of its producers off, unless it or the connector says otherwise."""
    acks = connector.get("producer.override.acks", "all")
    if acks not in ("all", "-1"):
        yield Finding(
            "error",
            _name(connector),
            f"producer.override.acks is {acks}: rows that one broker took are lost with it",
            "set producer.override.acks=all",
        )
    exactly_once = connector.get("exactly.once.support", "").lower() == "required"
    if not exactly_once and not _on(connector, "producer.override.enable.idempotence"):
        yield Finding(
            "warning",
            _name(connector),
            "its producer is not idempotent, as far as its config says: a retry may send rows twice, and out of order",
            "set producer.override.enable.idempotence=true (the worker needs "
            "connector.client.config.override.policy=All), or producer.enable.idempotence=true in the worker's "
            "properties, which zync cannot see",
        )


def _tolerance(connector: Connector, _config: Config) -> Iterator[Finding]:
    """Rows that the connector, or Connect, leaves out where it meets an error."""
    for name, given in (("errors.tolerance", ("all",)), ("event.processing.failure.handling.mode", ("warn", "skip"))):
        if connector.get(name, "").lower() in given:
            yield Finding(
                "error",
                _name(connector),
                f"{name} is {connector[name]}: rows that cannot be sent are left out, and nothing in Kafka tells",
                f"set {name}={'none' if name == 'errors.tolerance' else 'fail'}",
            )


def _types(connector: Connector, config: Config) -> Iterator[Finding]:
    """Numbers and times as a rule gets them, which in JSON without a schema has to see what they are."""
    plain, kind = config.formats.value == "json", connector.get("connector.class", "").lower()
    decimals = connector.get("decimal.handling.mode", "precise")
    if decimals == "precise" and plain:
        yield Finding(
            "warning",
            _name(connector),
            "decimal.handling.mode is precise: in JSON without a schema decimals are base64 of their digits, and "
            "nothing says where the point is",
            "set decimal.handling.mode=string, or send Avro, or JSON with schemas (formats: {value: connect-json})",
        )
    elif decimals == "precise" and "postgres" in kind:
        yield Finding(
            "note",
            _name(connector),
            "decimal.handling.mode is precise: NaN and infinity in a numeric column come as null",
            "set decimal.handling.mode=string where a column has them",
        )
    elif decimals == "double":
        yield Finding(
            "warning",
            _name(connector),
            "decimal.handling.mode is double: decimals are rounded",
            "set decimal.handling.mode=string" + ("" if plain else " or precise"),
        )
    if ("mysql" in kind or "mariadb" in kind) and connector.get("bigint.unsigned.handling.mode", "long") == "long":
        yield Finding(
            "note",
            _name(connector),
            "bigint.unsigned.handling.mode is long: a BIGINT UNSIGNED of 9223372036854775808 or more comes as a "
            "negative number",
            "set bigint.unsigned.handling.mode=precise where a column has such numbers",
        )
    times = connector.get("time.precision.mode", "adaptive")
    if times == "nanoseconds":
        yield Finding(
            "note",
            _name(connector),
            "time.precision.mode is nanoseconds: times before 1677 and after 2262 come as null",
            "set time.precision.mode=microseconds where a column has them",
        )
    if times == "connect":
        yield Finding(
            "warning",
            _name(connector),
            "time.precision.mode is connect: microseconds are cut off",
            "set time.precision.mode=" + ("isostring" if plain else "adaptive"),
        )
    elif times != "isostring" and plain:
        yield Finding(
            "note",
            _name(connector),
            f"time.precision.mode is {times}: times are numbers, of days, milliseconds, microseconds or nanoseconds by "
            "the column's type, and nothing in plain JSON says which",
            "say the unit in each rule, or set time.precision.mode=isostring",
        )


def _heartbeats(connector: Connector, _config: Config) -> Iterator[Finding]:
    """A connector that has nothing to send has nothing to confirm either."""
    if connector.get("heartbeat.interval.ms", "0") == "0":
        postgres = "postgres" in connector.get("connector.class", "").lower()
        yield Finding(
            "warning" if postgres else "note",
            _name(connector),
            "heartbeat.interval.ms is 0: while its tables do not change it confirms nothing"
            + (", so that PostgreSQL keeps all WAL of other tables and databases" if postgres else ""),
            "set heartbeat.interval.ms=10000" + (", and heartbeat.action.query" if postgres else ""),
        )


def _left_out(connector: Connector, _config: Config) -> Iterator[Finding]:
    """Large values of PostgreSQL that an update did not touch, by the tables' REPLICA IDENTITY."""
    if (
        "postgres" in connector.get("connector.class", "").lower()
        and "replica.identity.autoset.values" not in connector
    ):
        yield Finding(
            "note",
            _name(connector),
            "where a table's REPLICA IDENTITY is not FULL, large values that an update did not touch are left out, and "
            "a row before an update has its key only",
            "ALTER TABLE … REPLICA IDENTITY FULL, or replica.identity.autoset.values, where rules need them",
        )


def _tombstones(connector: Connector, _config: Config) -> Iterator[Finding]:
    """Tombstones are for compaction, which topics that zync reads should not have."""
    if connector.get("tombstones.on.delete", "true").lower() == "true":
        yield Finding(
            "note",
            _name(connector),
            "tombstones.on.delete is true: a record without value follows each delete; zync settles it without output",
            "set tombstones.on.delete=false, unless others need them",
        )


_OF_CONNECTORS: tuple[Callable[[Connector, Config], Iterator[Finding]], ...] = (
    _metadata,
    _transforms,
    _skipped,
    _idempotence,
    _tolerance,
    _types,
    _heartbeats,
    _left_out,
    _tombstones,
)


def _name(connector: Connector) -> str:
    return f"connector {connector['name']}" if "name" in connector else "connector"


def _on(connector: Connector, name: str) -> bool:
    return connector.get(name, "false").strip().lower() == "true"


def _listed(connector: Connector, name: str) -> list[str]:
    return [one.strip() for one in connector.get(name, "").split(",") if one.strip()]


# ----------------------------------------------------------------------------------------------------------- topics


def _missing(topics: Topics, config: Config) -> Iterator[Finding]:
    """Topics that the config names and Kafka does not have."""
    for name in config.topics:
        if not name.startswith("^") and name not in topics:
            yield Finding(
                "warning",
                f"topic {name}",
                "Kafka does not have it, and `zync sync-from` ends on that",
                "create it, or correct its name in the config",
            )


def _order(topics: Topics, config: Config) -> Iterator[Finding]:
    """The order of commits is that of END in the topic of BEGIN and END, if it has one partition."""
    said = config.transactions
    there = topics.get(said.topic or "")
    if said.order == "commit" and there is not None and there.partitions > 1:
        yield Finding(
            "error",
            f"topic {said.topic}",
            f"it has {there.partitions} partitions, between which Kafka keeps no order, and the config has order: "
            "commit",
            "make it with one partition, or take order: completion",
        )


def _kept(topics: Topics, config: Config) -> Iterator[Finding]:
    """Records that Kafka takes away before zync has read all of their transactions."""
    wanted = config.transactions.expire_after
    for name, one in topics.items():
        policy = one.properties.get("cleanup.policy", "delete")
        if "compact" in policy:
            yield Finding(
                "error",
                f"topic {name}",
                f"cleanup.policy is {policy}: of the rows of a key all but the newest are taken away, so that "
                "transactions which were not read by then never complete",
                "set cleanup.policy=delete",
            )
        kept = int(one.properties.get("retention.ms", "-1"))
        if "delete" in policy and 0 <= kept < wanted / timedelta(milliseconds=1):
            yield Finding(
                "warning",
                f"topic {name}",
                f"retention.ms keeps records for {duration_text(timedelta(milliseconds=kept))}, and a transaction may "
                f"be in flight for {duration_text(wanted)} (expire_after)",
                "set retention.ms to that at least, and as long as sync-from may be down",
            )


_OF_TOPICS: tuple[Callable[[Topics, Config], Iterator[Finding]], ...] = (_missing, _order, _kept)


def as_dict(findings: list[Finding]) -> dict[str, Any]:
    """The findings for programs."""
    return {"ok": not hurts(findings), "findings": [vars(one) for one in findings]}
