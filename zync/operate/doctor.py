"""`zync doctor`: checks a connector's config and Kafka's topics for settings that damage transactions.

Each check is a function of the configs alone, so that it can be tested without a connector or a broker.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from zync.config.model import Config
from zync.config.topic_names import is_topic
from zync.config.units import duration_text

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """A setting that does harm, and its remedy.

    Attributes:
        severity: `error` if data is lost, wrong or never complete; `warning` if that happens only under circumstances
            that do occur; `note` if the setting may be intended.
        about: the connector, or a topic.
        seen: the setting and its effect.
        do: the remedy.
    """

    severity: Severity
    about: str
    seen: str
    do: str


@dataclass(frozen=True)
class TopicSettings:
    """A topic's number of partitions in Kafka, and its properties (`cleanup.policy` …) by name."""

    partitions: int
    properties: Mapping[str, str] = field(default_factory=dict)


Connector = Mapping[str, str]
"""A connector's config: its properties by name."""
Topics = Mapping[str, TopicSettings]
"""The settings of topics by name."""


def diagnose(connector: Connector | None, topics: Topics | None, config: Config) -> list[Finding]:
    """Runs all checks and returns their findings, errors first.

    Args:
        connector: the connector's config; None: it is not checked.
        topics: the topics that zync reads; None: they are not checked.
        config: zync's config.
    """
    findings: list[Finding] = []
    if connector is not None:
        findings += (finding for check in _CONNECTOR_CHECKS for finding in check(connector, config))
    if topics is not None:
        findings += (finding for check in _TOPIC_CHECKS for finding in check(topics, config))
    order = ("error", "warning", "note")
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def hurts(findings: list[Finding]) -> bool:
    """Returns whether a finding is more severe than a note."""
    return any(finding.severity != "note" for finding in findings)


def describe(findings: list[Finding], looked_at: str) -> str:
    """Returns a line for each finding; if there are none, a line that names `looked_at`, which was checked."""
    lines = [f"{finding.severity:7} {finding.about}: {finding.seen}; {finding.do}" for finding in findings]
    return "\n".join(lines) or f"nothing in {looked_at} will hurt"


def read_topics(config: Config, partition_counts: Mapping[str, int]) -> list[str]:
    """Returns the topics that the config reads, of those in Kafka (`partition_counts`, by topic), sorted."""
    return sorted(topic for topic in partition_counts if any(is_topic(topic, name) for name in config.topics))


# ------------------------------------------------------------------------------------------------------- connectors


def _check_transaction_metadata(connector: Connector, config: Config) -> Iterator[Finding]:
    """Checks that rows carry transaction ids, and that BEGIN and END go to the topic that zync reads them from."""
    if not _is_true(connector, "provide.transaction.metadata"):
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
    written = connector.get("topic.delimiter", ".").join((prefix, connector.get("topic.transaction", "transaction")))
    if written not in topics:
        several = f"connectors in the config have {', '.join(topics)}"
        read = several if config.transactions.connectors else f"topic in the config is {topics[0]}"
        yield Finding(
            "error",
            _name(connector),
            f"it sends BEGIN and END to {written}, and transactions.{read}",
            "let both name one topic (topic.prefix, topic.delimiter and topic.transaction make the connector's)",
        )


def _check_transforms(connector: Connector, _config: Config) -> Iterator[Finding]:
    """Checks the single message transforms, which see each row by itself, after END has counted it."""
    for name in _list_property(connector, "transforms"):
        class_name = connector.get(f"transforms.{name}.type", "").rpartition(".")[2]
        severity, seen, do = next(
            (effect for prefix, effect in _TRANSFORMS if class_name.startswith(prefix)),
            ("note", "zync does not know what it does", "see that envelopes, headers and topics stay as they are"),
        )
        if seen:
            yield Finding(severity, _name(connector), f"transform {name} ({class_name}): {seen}", do)


_UNWRAPS_ENVELOPE: tuple[Severity, str, str] = (
    "error",
    "rows come without Debezium's envelope, so that zync sets them aside",
    "take it out: the preset's views have the columns `row`, `before` and `after`",
)
_DROPS_ROWS: tuple[Severity, str, str] = (
    "error",
    "it drops rows that END has counted, so that their transactions never complete",
    "take it out, and leave rows out in rules; or leave tables out by table.include.list; or name them in "
    "transactions.uncounted",
)
_REROUTES: tuple[Severity, str, str] = (
    "warning",
    "rows go to topics of other names, and the preset reads those that begin with the connector's prefix",
    "take it out, name the new topics in transactions.tables, or see that they begin with the prefix",
)
_HARMLESS: tuple[Severity, str, str] = ("note", "", "")
_TRANSFORMS: tuple[tuple[str, tuple[Severity, str, str]], ...] = (
    ("ExtractNewRecordState", _UNWRAPS_ENVELOPE),
    ("ExtractNewDocumentState", _UNWRAPS_ENVELOPE),
    ("ExtractField$Value", _UNWRAPS_ENVELOPE),
    ("Flatten$Value", _UNWRAPS_ENVELOPE),
    ("HoistField$Value", _UNWRAPS_ENVELOPE),
    (
        "ReplaceField$Value",
        (
            "warning",
            "it takes fields of Debezium's envelope away, or renames them",
            "let it keep before, after, source, op, ts_ms and transaction; or take it out, and choose columns in rules",
        ),
    ),
    ("EventRouter", _UNWRAPS_ENVELOPE),
    ("MongoEventRouter", _UNWRAPS_ENVELOPE),
    ("Filter", _DROPS_ROWS),
    ("ByLogicalTableRouter", _REROUTES),
    ("ContentBasedRouter", _REROUTES),
    ("RegexRouter", _REROUTES),
    ("TimestampRouter", _REROUTES),
    ("ExtractTopic", _REROUTES),
    (
        "DropHeaders",
        (
            "warning",
            "it may drop the headers by which zync tells rows that are sent again after a restart, and changed keys",
            "let it keep __debezium.context.runId, __debezium.newkey and __debezium.oldkey",
        ),
    ),
    ("ExtractChangedRecordState", _HARMLESS),
    ("PartitionRouting", _HARMLESS),
    ("InsertHeader", _HARMLESS),
    ("HeaderFrom", _HARMLESS),
    ("SetSchemaMetadata", _HARMLESS),
)
"""Prefixes of transforms' class names, and the severity, effect and remedy of each. The first that matches counts."""


def _check_skipped_operations(connector: Connector, _config: Config) -> Iterator[Finding]:
    """Checks for operations that the connector leaves out: END does not count them, so transactions complete."""
    setting = connector.get("skipped.operations")
    skipped = {"t"} if setting is None else {operation.strip() for operation in setting.split(",")} - {"none", ""}
    names = {"c": "inserts", "u": "updates", "d": "deletes"}
    if lost := [text for key, text in names.items() if key in skipped]:
        yield Finding(
            "error",
            _name(connector),
            f"skipped.operations is {setting}: {', '.join(lost)} never come, and nothing tells",
            "set skipped.operations=none",
        )
    if "t" in skipped and "mongodb" not in connector.get("connector.class", ""):
        yield Finding(
            "note" if setting is None else "warning",
            _name(connector),
            f"skipped.operations is {setting or 't, its default'}: TRUNCATE does not come, so that tables keep the "
            "rows",
            "set skipped.operations=none if tables are truncated",
        )


def _check_producer(connector: Connector, _config: Config) -> Iterator[Finding]:
    """Checks acks and idempotence of the producer: Connect's worker turns idempotence off by default."""
    acks = connector.get("producer.override.acks", "all")
    if acks not in ("all", "-1"):
        yield Finding(
            "error",
            _name(connector),
            f"producer.override.acks is {acks}: rows that one broker took are lost with it",
            "set producer.override.acks=all",
        )
    exactly_once = connector.get("exactly.once.support", "").lower() == "required"
    if not exactly_once and not _is_true(connector, "producer.override.enable.idempotence"):
        yield Finding(
            "warning",
            _name(connector),
            "its producer is not idempotent, as far as its config says: a retry may send rows twice, and out of order",
            "set producer.override.enable.idempotence=true (the worker needs "
            "connector.client.config.override.policy=All), or producer.enable.idempotence=true in the worker's "
            "properties, which zync cannot see",
        )


def _check_error_tolerance(connector: Connector, _config: Config) -> Iterator[Finding]:
    """Checks for settings by which the connector, or Connect, drops rows that cause an error."""
    lossy_modes = (("errors.tolerance", ("all",)), ("event.processing.failure.handling.mode", ("warn", "skip")))
    for name, modes in lossy_modes:
        if connector.get(name, "").lower() in modes:
            yield Finding(
                "error",
                _name(connector),
                f"{name} is {connector[name]}: rows that cannot be sent are left out, and nothing in Kafka tells",
                f"set {name}={'none' if name == 'errors.tolerance' else 'fail'}",
            )


def _check_types(connector: Connector, config: Config) -> Iterator[Finding]:
    """Checks how numbers and times are encoded: JSON without a schema does not tell a rule their type."""
    formats = {config.format(topic, "value") for topic in config.topics.values() if topic.envelope}
    plain_json = "json" in (formats or {config.formats.value})
    connector_class = connector.get("connector.class", "").lower()
    decimals = connector.get("decimal.handling.mode", "precise")
    if decimals == "precise" and plain_json:
        yield Finding(
            "warning",
            _name(connector),
            "decimal.handling.mode is precise: in JSON without a schema decimals are base64 of their digits, and "
            "nothing says where the point is",
            "set decimal.handling.mode=string, or send Avro, or JSON with schemas (formats: {value: connect-json})",
        )
    elif decimals == "precise" and "postgres" in connector_class:
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
            "set decimal.handling.mode=string" + ("" if plain_json else " or precise"),
        )
    unsigned = connector.get("bigint.unsigned.handling.mode", "long")
    if ("mysql" in connector_class or "mariadb" in connector_class) and unsigned == "long":
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
            "set time.precision.mode=" + ("isostring" if plain_json else "adaptive"),
        )
    elif times != "isostring" and plain_json:
        yield Finding(
            "note",
            _name(connector),
            f"time.precision.mode is {times}: times are numbers, of days, milliseconds, microseconds or nanoseconds by "
            "the column's type, and nothing in plain JSON says which",
            "say the unit in each rule, or set time.precision.mode=isostring",
        )


def _check_heartbeats(connector: Connector, _config: Config) -> Iterator[Finding]:
    """Checks that heartbeats are on: without them an idle connector confirms no position to its database."""
    if connector.get("heartbeat.interval.ms", "0") == "0":
        postgres = "postgres" in connector.get("connector.class", "").lower()
        yield Finding(
            "warning" if postgres else "note",
            _name(connector),
            "heartbeat.interval.ms is 0: while its tables do not change it confirms nothing"
            + (", so that PostgreSQL keeps all WAL of other tables and databases" if postgres else ""),
            "set heartbeat.interval.ms=10000" + (", and heartbeat.action.query" if postgres else ""),
        )


def _check_toast_values(connector: Connector, _config: Config) -> Iterator[Finding]:
    """Notes that PostgreSQL leaves unchanged large (TOAST) values out, unless REPLICA IDENTITY is FULL."""
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


def _check_tombstones(connector: Connector, _config: Config) -> Iterator[Finding]:
    """Notes tombstones: they serve compaction, which topics that zync reads should not have."""
    if connector.get("tombstones.on.delete", "true").lower() == "true":
        yield Finding(
            "note",
            _name(connector),
            "tombstones.on.delete is true: a record without value follows each delete; zync settles it without output",
            "set tombstones.on.delete=false, unless others need them",
        )


_CONNECTOR_CHECKS: tuple[Callable[[Connector, Config], Iterator[Finding]], ...] = (
    _check_transaction_metadata,
    _check_transforms,
    _check_skipped_operations,
    _check_producer,
    _check_error_tolerance,
    _check_types,
    _check_heartbeats,
    _check_toast_values,
    _check_tombstones,
)


def _name(connector: Connector) -> str:
    return f"connector {connector['name']}" if "name" in connector else "connector"


def _is_true(connector: Connector, name: str) -> bool:
    return connector.get(name, "false").strip().lower() == "true"


def _list_property(connector: Connector, name: str) -> list[str]:
    return [item.strip() for item in connector.get(name, "").split(",") if item.strip()]


# ----------------------------------------------------------------------------------------------------------- topics


def _check_missing_topics(topics: Topics, config: Config) -> Iterator[Finding]:
    """Checks that Kafka has the topics that the config names."""
    for name in config.topics:
        if not name.startswith("^") and name not in topics:
            yield Finding(
                "warning" if name in config.sources else "note",
                f"topic {name}",
                f"Kafka does not have it, and {effect_of_missing(name, config)}",
                "create it, or correct its name in the config",
            )


def effect_of_missing(topic: str, config: Config) -> str:
    """Returns what it means that Kafka does not have a topic which the config names; no ^regex."""
    return "`zync sync-from` ends on that" if topic in config.sources else "its view is empty until it comes"


def _check_commit_order(topics: Topics, config: Config) -> Iterator[Finding]:
    """Checks that topics of BEGIN and END have a single partition, where commit order is the order of END in it."""
    partitions = {name: settings.partitions for name, settings in topics.items()}
    for name in config.transactions.end_topics_without_order(partitions):
        yield Finding(
            "error",
            f"topic {name}",
            f"it has {partitions[name]} partitions, between which Kafka keeps no order, and the config has order: "
            "commit",
            "make it with one partition, or take order: completion",
        )


def _check_retention(topics: Topics, config: Config) -> Iterator[Finding]:
    """Checks that Kafka neither compacts nor deletes records before zync has read all of their transactions."""
    expire_after = config.transactions.expire_after
    for name, settings in topics.items():
        policy = settings.properties.get("cleanup.policy", "delete")
        if "compact" in policy:
            yield Finding(
                "error",
                f"topic {name}",
                f"cleanup.policy is {policy}: of the rows of a key all but the newest are taken away, so that "
                "transactions which were not read by then never complete",
                "set cleanup.policy=delete",
            )
        retention_ms = int(settings.properties.get("retention.ms", "-1"))
        if "delete" in policy and 0 <= retention_ms < expire_after / timedelta(milliseconds=1):
            yield Finding(
                "warning",
                f"topic {name}",
                f"retention.ms keeps records for {duration_text(timedelta(milliseconds=retention_ms))}, and a "
                f"transaction may be in flight for {duration_text(expire_after)} (expire_after)",
                "set retention.ms to that at least, and as long as sync-from may be down",
            )


_TOPIC_CHECKS: tuple[Callable[[Topics, Config], Iterator[Finding]], ...] = (
    _check_missing_topics,
    _check_commit_order,
    _check_retention,
)


def as_dict(findings: list[Finding]) -> dict[str, Any]:
    """Returns the findings for JSON output; `ok` is whether none is more severe than a note."""
    return {"ok": not hurts(findings), "findings": [vars(finding) for finding in findings]}
