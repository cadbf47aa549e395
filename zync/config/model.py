"""The content of `zync.yaml` as frozen dataclasses.

`zync.project.load` creates them from the file; only tests and notebooks create them otherwise.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Literal

from zync.config.catalog import Catalog
from zync.config.rule_modules import read_modules
from zync.config.secrets import masked
from zync.config.storage import Storage
from zync.config.topic_names import is_topic
from zync.errors import UsageError

RESERVED_TOPIC = "__zync"
"""The topic of records that operators' commands append to raw."""
PROGRESS_TOPIC = "__zync_progress"
"""The Kafka topic with the progress of deliveries."""
KAFKAS_OWN = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__remote_log_metadata"}
)
"""Kafka's internal topics, which are never an input or an output."""


# Keys that older versions did not have. Their defaults are left out of digests, which so stay the same.
_KEYS_OMITTED_AT_DEFAULT = (
    "prefix",
    "delimiter",
    "tables",
    "connectors",
    "uncounted",
    "incomplete",
    "unavailable_value",
)

UNAVAILABLE_VALUE = "__debezium_unavailable_value"
"""Debezium's default of `unavailable.value.placeholder`."""

Part = Literal["key", "value"]
PARTS: tuple[Part, ...] = ("key", "value")
"""The two parts of a Kafka record that have a format."""

Format = Literal["json", "avro", "protobuf", "json-schema", "connect-json", "string", "bytes"]

DeliveredFormat = Literal["json", "avro", "protobuf", "json-schema"]


@dataclass(frozen=True)
class Formats:
    """Formats of keys and values of all input topics. A topic may name its own.

    Attributes:
        key: Format of keys.
        value: Format of values. `avro`, `protobuf` and `json-schema` are read by `registry`; Avro also by a schema
            file.
    """

    key: Format = "json"
    value: Format = "json"


@dataclass(frozen=True)
class RegistryAccess:
    """Address of a schema registry, and how to authenticate there.

    Attributes:
        url: Base URL, `http://…` or `https://…`, without user and password.
        basic_auth: `user:password`, best as `${USER}:${PASSWORD}`.
        ca: PEM file with the certificates to trust.
        certificate: PEM file with the client's certificate.
        certificate_key: PEM file with the key of the client's certificate.
        timeout: How long a request may take. A registry that does not answer stops the sync.
    """

    url: str
    basic_auth: str | None = field(default=None, repr=False)
    ca: Path | None = None
    certificate: Path | None = None
    certificate_key: Path | None = None
    timeout: timedelta = timedelta(seconds=10)


@dataclass(frozen=True)
class Topic:
    """An input topic: how its records are decoded, and where they say which transaction they belong to.

    A topic is named as in Kafka, or by a `^regex` for all that match. With the Debezium preset the topics of the
    connector need no entry; `as` and `schema` may be set for them.

    Attributes:
        id: SQL expression for the transaction id, over the decoded record. Its result is cast to text. Required, except
            for topics that the Debezium preset covers.
        schema: Columns of the value as DDL, like `"txn STRING, qty INT"`. The topic's view then has a struct for
            `value`; without it a VARIANT.
        as_: Name of the topic's view in rules. Default: the topic's name.
        null_id: What a record without id is: a transaction by itself (`single`), or a mistake that is set aside
            (`quarantine`).
        record_id: SQL expression that is the same for repeats of a record. Repeats are dropped and counted as
            `duplicate`. Without it every record is real.
        key: Format of keys. Default: `formats.key`.
        value: Format of values. Default: `formats.value`.
        avro_schema: File with the Avro schema of values, for `value: avro` without a registry.
        key_avro_schema: File with the Avro schema of keys, for `key: avro` without a registry.
        compression: What producers compressed values with before they sent them. A value may have up to 256 MiB.
        envelope: Whether values are those of a Debezium connector. Set by the preset, not in the file.
    """

    id: str = ""
    schema: str | None = None
    as_: str | None = field(default=None, metadata={"key": "as"})
    null_id: Literal["single", "quarantine"] = "quarantine"
    record_id: str | None = None
    key: Format | None = None
    value: Format | None = None
    avro_schema: Path | None = None
    key_avro_schema: Path | None = None
    compression: Literal["none", "gzip"] = "none"
    envelope: bool = field(default=False, metadata={"key": None})

    def schema_file(self, part: Part) -> Path | None:
        """Returns the file with the Avro schema of the topic's keys or values; None if it has none."""
        return self.key_avro_schema if part == "key" else self.avro_schema

    @cached_property
    def schema_texts(self) -> dict[Part, str]:
        """The texts of `schema_file`, by part; read once, so that the digest is of the schema that decodes."""
        return {part: file.read_text(encoding="utf-8") for part in PARTS if (file := self.schema_file(part))}


@dataclass(frozen=True)
class DebeziumConnector:
    """A connector whose records the Debezium preset reads: its topics, and what its transactions are called after.

    Attributes:
        topic: The connector's topic of BEGIN and END: Debezium joins its `topic.prefix` and `topic.transaction` by
            `topic.delimiter`, and the default is `<prefix>.transaction`.
        prefix: The connector's `topic.prefix`. Its topics are those that begin with it and the delimiter. Default:
            `topic` without `.transaction`; required where `topic` does not end so, unless `tables` are named.
        delimiter: The connector's `topic.delimiter`. Needs `prefix`.
        tables: The topics of the connector's rows, by name or `^regex`, where a router renames them. Instead of those
            with the prefix.
        name: Name of the connector, which stands before the ids of its transactions where there are several
            connectors, as in `shop/15023`. Default: the prefix. An empty name leaves the ids as they are; one
            connector may have it.
    """

    topic: str
    prefix: str | None = None
    delimiter: str = "."
    tables: tuple[str, ...] = ()
    name: str | None = None

    @property
    def begins(self) -> str:
        """The prefix of the connector's topics."""
        return f"{self.prefix or self.topic.removesuffix('.transaction')}{self.delimiter}"

    @property
    def label(self) -> str:
        """The connector's name."""
        return self.name if self.name is not None else self.prefix or self.topic.removesuffix(".transaction")


@dataclass(frozen=True)
class Incomplete:
    """How long others wait, with `order: commit`, for a transaction that is not whole.

    Attributes:
        after: From its first record on, by the clock of raw: the time at which the newest record was taken in.
        do: Wait on, until an operator decides (`hold`), or send out what is there of it (`release`). zync writes each
            release into raw, as a decision of `zync`.
    """

    after: timedelta
    do: Literal["hold", "release"] = "hold"


@dataclass(frozen=True)
class Transactions:
    """When a transaction is complete, how long zync waits for it, and how long its id is remembered.

    Attributes:
        done: SQL expression with aggregates over all records of a transaction. The transaction is complete where it is
            true; null counts as false. Either this or `preset`.
        preset: A ready-made `done`: `debezium` reads BEGIN, END and the envelopes of one connector, or of several.
        topic: The connector's topic of BEGIN and END, `<prefix>.transaction`. `preset` needs this or `connectors`.
        prefix: The connector's `topic.prefix`, where `topic` is not `<prefix>.transaction`.
        delimiter: The connector's `topic.delimiter`. Needs `prefix`.
        tables: The topics of the connector's rows, by name or `^regex`, where a router renames them.
        connectors: Several connectors, instead of `topic`. Their transactions are told apart by the connector's name.
        uncounted: Tables whose rows END counts although a filter in the connector may drop them, as END names them
            (`public.audit`). A transaction does not wait for their rows.
        unavailable_value: What the connector sends in place of a value that it leaves out, its option
            `unavailable.value.placeholder`. Needs `preset`.
        order: Order in which transactions go out: as they become complete (`completion`), or as the source committed
            them (`commit`). `commit` needs `preset`, and one partition in each topic of BEGIN and END.
        incomplete: How long others wait, with `order: commit`, for a transaction that is not whole. Default: until it
            is whole, or an operator decides.
        expire_after: How long a transaction in flight holds the cursor. After that it is expired: still listed, and
            complete as soon as its rest comes.
        remember: For how many records of raw the id of a settled transaction is remembered. A record that comes within
            them is `late`; after them its id starts a new transaction.
    """

    done: str = "false"
    preset: Literal["debezium"] | None = None
    topic: str | None = None
    prefix: str | None = None
    delimiter: str = "."
    tables: tuple[str, ...] = ()
    connectors: tuple[DebeziumConnector, ...] = ()
    uncounted: tuple[str, ...] = ()
    unavailable_value: str = UNAVAILABLE_VALUE
    order: Literal["completion", "commit"] = "completion"
    incomplete: Incomplete | None = None
    expire_after: timedelta = timedelta(hours=24)
    remember: int = 1_000_000

    @cached_property
    def sources(self) -> tuple[DebeziumConnector, ...]:
        """The connectors that the preset reads; none without it."""
        if self.preset is None:
            return ()
        if self.connectors:
            return self.connectors
        return (DebeziumConnector(str(self.topic), self.prefix, self.delimiter, self.tables, name=""),)

    @property
    def end_topics(self) -> tuple[str, ...]:
        """The topics of BEGIN and END."""
        return tuple(connector.topic for connector in self.sources)

    def end_topics_without_order(self, partitions: Mapping[str, int]) -> list[str]:
        """Returns the topics of BEGIN and END with several partitions, between which `order: commit` has no order.

        Args:
            partitions: The number of partitions by topic.
        """
        return [topic for topic in self.end_topics if self.order == "commit" and partitions.get(topic, 1) > 1]

    def check_partitions(self, partitions: Mapping[str, int]) -> None:
        """Checks that with `order: commit` each topic of BEGIN and END has a single partition.

        Args:
            partitions: The number of partitions by topic.

        Raises:
            UsageError: Such a topic has several partitions.
        """
        for topic in self.end_topics_without_order(partitions):
            msg = (
                f"transactions.order: commit needs topic {topic} to have one partition, for Kafka keeps no order "
                f"between partitions, and it has {partitions[topic]}: make it with one, or take order: completion"
            )
            raise UsageError(msg)


@dataclass(frozen=True)
class DebeziumModes:
    """Options of the Debezium connector that say what its numbers and texts mean, where topics have a `schema`.

    With `connect-json` and Avro the schema beside the values says it.

    Attributes:
        time_precision_mode: The connector's `time.precision.mode`. Without it a number is no date or timestamp. With
            the adaptive modes a timestamp's column needs its unit in `schema`: `created TIMESTAMP COMMENT 'micros'` (or
            `millis`, `nanos`).
        decimal_handling_mode: The connector's `decimal.handling.mode`. With `precise` a decimal is read from its bytes,
            by the scale that `schema` says. Without it decimals are numbers, or text.
    """

    time_precision_mode: (
        Literal["adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"] | None
    ) = None
    decimal_handling_mode: Literal["precise", "double", "string"] | None = None


@dataclass(frozen=True)
class Lookup:
    """A table that rules may join, pinned in each sync. Exactly one of the three keys.

    Attributes:
        csv: CSV file with a header. Spark infers the types of its columns.
        json: File with JSON Lines.
        delta: Path or URI of a Delta table.
    """

    csv: Path | None = None
    json: Path | None = None
    delta: str | None = None


@dataclass(frozen=True)
class OutputRule:
    """A rule: one SELECT, or one Python function, that makes rows of one output topic.

    A rule has exactly one of `sql` and `python`.

    Attributes:
        topic: Name of the output topic. Several rules may feed one topic.
        sql: File with the SELECT.
        python: A function of a DataFrame that returns one, as `FILE:FUNCTION`, like `etl/rule.py:orders`. It may import
            modules and packages beside the file.
        key: Columns that make the key of an output row.
        null_keys: What a row with a null in a column of its key is: a mistake, for which its transaction is set aside
            (`quarantine`), or a row like others (`allow`).
    """

    topic: str
    sql: Path | None = None
    python: str | None = None
    key: tuple[str, ...] = ()
    null_keys: Literal["quarantine", "allow"] = "quarantine"

    @property
    def name(self) -> str:
        """The rule's name in messages: its file, with the function of a Python rule."""
        return self.sql.name if self.sql else Path(str(self.python)).name

    @property
    def file(self) -> Path:
        """The file of the rule."""
        return self.sql or Path(str(self.python).partition(":")[0])

    @cached_property
    def text(self) -> str:
        """The file's text; read once, so that the digest is of the rule that runs, also if the file is saved later."""
        return self.file.read_text(encoding="utf-8-sig")

    @cached_property
    def modules(self) -> dict[str, bytes]:
        """The modules beside a Python rule that it imports, by their path in its folder; read once, as `text` is."""
        return read_modules(self.text, self.file.parent) if self.python else {}

    @cached_property
    def modules_digest(self) -> str:
        """A digest of `modules`; empty if there are none."""
        contents = {path: hashlib.sha256(content).hexdigest() for path, content in self.modules.items()}
        return _digest(contents) if contents else ""


@dataclass(frozen=True)
class DeliveredTopic:
    """The Kafka topic that an output topic is sent to.

    A topic that does not exist is created so. One that exists is checked.

    Attributes:
        as_: Name of the topic in Kafka. Default: the output topic's name.
        partitions: Number of partitions. Default: the brokers'.
        replication: Replication factor. Default: the brokers'.
        cleanup_policy: The topic's `cleanup.policy`. Default: the brokers'.
        key: Format of keys. Default: `deliver.kafka.formats.key`.
        value: Format of values. Default: `deliver.kafka.formats.value`.
    """

    as_: str | None = field(default=None, metadata={"key": "as"})
    partitions: int | None = None
    replication: int | None = None
    cleanup_policy: Literal["delete", "compact", "compact,delete"] | None = None
    key: DeliveredFormat | None = None
    value: DeliveredFormat | None = None


@dataclass(frozen=True)
class DeliveredFormats:
    """Formats of keys and values of all topics that are sent. A topic may name its own.

    Attributes:
        key: Format of keys.
        value: Format of values.
    """

    key: DeliveredFormat = "json"
    value: DeliveredFormat = "json"


@dataclass(frozen=True)
class KafkaDelivery:
    """What `zync sync-to kafka` does: where to send, under which name, as what. `kafka: {}` is enough.

    Attributes:
        properties: librdkafka properties of the producer. With `bootstrap.servers` among them, another Kafka than that
            of `kafka`.
        name: Name of the delivery, which is its transactional id. Default: made from the table id of raw.
        progress_topic: Compacted topic that says how far each delivery is.
        transaction_topic: Topic for a BEGIN and an END of each transaction, as Debezium sends them. Default: none.
        topics: Settings of single output topics, by name.
        formats: Formats of keys and values.
        registry: Schema registry of the formats other than JSON. Default: that of the config.
    """

    properties: dict[str, str] = field(default_factory=dict)
    name: str | None = None
    progress_topic: str = PROGRESS_TOPIC
    transaction_topic: str | None = None
    topics: dict[str, DeliveredTopic] = field(default_factory=dict)
    formats: DeliveredFormats = field(default_factory=DeliveredFormats)
    registry: RegistryAccess | None = None

    def name_of(self, raw_id: str | None) -> str:
        """Returns the delivery's name; by default it has the table id of the raw from which staging was made."""
        return self.name or f"zync-{raw_id}"

    def topic(self, output: str) -> DeliveredTopic:
        """Returns the settings of an output topic."""
        return self.topics.get(output, DeliveredTopic())

    def target(self, output: str) -> str:
        """Returns the name of an output topic in Kafka."""
        return self.topic(output).as_ or output


@dataclass(frozen=True)
class DeliveredTable:
    """The Delta table that an output topic is merged into, `<lake>/tables/<topic>`.

    Attributes:
        apply: What a row does to the table. `upsert` keeps the newest row of each key, `history` one row for each
            version of a key, `append` all rows. Default: `upsert` where the rule has a key, `append` otherwise. It
            cannot change.
        partition_by: Columns that partition the table. They cannot change. Not together with `cluster_by`.
        cluster_by: Columns that files are clustered by. A change holds for files written from then on.
        schema_changes: What to do when a rule selects a new column, or a wider type: change the table (`add-columns`),
            or stop (`fail`).
        properties: Table properties of Delta, or of your own, in addition to `deliver.table_properties`.
        iceberg: Whether there is metadata of Iceberg, too, in `<lake>/tables/_iceberg/<topic>`, at the newest snapshot.
            Needs the extra: `pip install 'zync[iceberg]'`. Not for a lake in Google Cloud Storage or Azure.
    """

    apply: Literal["upsert", "append", "history"] | None = None
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    schema_changes: Literal["add-columns", "fail"] = "add-columns"
    properties: dict[str, str] = field(default_factory=dict)
    iceberg: bool = False


@dataclass(frozen=True)
class Deliver:
    """Where whole transactions go from staging. `zync run` delivers to what is named here.

    Attributes:
        kafka: To Kafka topics.
        tables: To Delta tables, with settings of single output topics, by name. `tables: {}` delivers all with
            defaults.
        catalog: The catalog that has the tables by name. An output topic that is called `catalog` has no settings
            beside it.
        table_properties: Table properties of all tables. Those of a single table (`properties`) go before them.
        table_interval: The least time from the begin of one batch of the tables to that of the next, while they keep
            up. Each batch is a commit to each table that has rows in it, which their logs keep for 30 days.
    """

    kafka: KafkaDelivery | None = None
    tables: dict[str, DeliveredTable] | None = None
    catalog: Catalog | None = field(default=None, metadata={"key": "tables.catalog"})
    table_properties: dict[str, str] = field(default_factory=dict)
    table_interval: timedelta = timedelta(seconds=1)

    def table(self, output: str) -> DeliveredTable:
        """Returns the settings of an output topic's table, with the properties of all tables."""
        settings = (self.tables or {}).get(output, DeliveredTable())
        return replace(settings, properties=self.table_properties | settings.properties)


@dataclass(frozen=True)
class Limits:
    """How much a sync may set aside before it stops instead, and how much it takes at once.

    Attributes:
        max_quarantined: Transactions, and records by themselves, that one sync may quarantine; or, as `5%`, a share of
            those that it settles. Where there are more, the sync stops and commits nothing.
        records_per_sync: New records that one sync reads at most. The next sync follows at once, and the output is the
            same as that of a single one. `auto`: 2,000,000, or fewer where they are large.
    """

    max_quarantined: float | int = 100
    records_per_sync: int | Literal["auto"] = "auto"

    def quarantined(self, settled: int) -> int:
        """Returns how many transactions a sync may quarantine.

        Args:
            settled: The number of transactions, and records by themselves, that the sync settles.
        """
        limit = self.max_quarantined
        return int(limit * settled) if isinstance(limit, float) else limit


@dataclass(frozen=True)
class Config:
    """The whole of `zync.yaml`. Paths are absolute, and `${NAME}` and `${file:PATH}` are replaced by what they name.

    Attributes:
        lake: Folder or URI that holds the tables. `--lake` and `ZYNC_LAKE` go before it.
        storage: How the lake's object store is reached, where the environment does not say it.
        kafka: librdkafka properties of the Kafka to read from, `bootstrap.servers` among them.
        topics: Input topics, by name or `^regex`.
        formats: Formats of keys and values of all input topics.
        registry: The schema registry.
        transactions: When a transaction is complete.
        debezium: What the connector's numbers and texts mean. Needs `transactions.preset`.
        lookups: Tables that rules may join, by the name of their view.
        outputs: The rules.
        deliver: Where whole transactions go from staging.
        limits: How much a sync may set aside, and how much it takes at once.
        spark: Spark properties.
        path: The file that was read; None for a config made in Python.
        elsewhere: Each value read from the environment or a file, and how the file names it.
    """

    lake: str = "./lake"
    storage: Storage = field(default_factory=Storage)
    kafka: dict[str, str] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    formats: Formats = field(default_factory=Formats)
    registry: RegistryAccess | None = None
    transactions: Transactions = field(default_factory=Transactions)
    debezium: DebeziumModes = field(default_factory=DebeziumModes)
    lookups: dict[str, Lookup] = field(default_factory=dict)
    outputs: tuple[OutputRule, ...] = ()
    deliver: Deliver = field(default_factory=Deliver)
    limits: Limits = field(default_factory=Limits)
    spark: dict[str, str] = field(default_factory=dict)
    path: Path | None = field(default=None, metadata={"key": None})
    elsewhere: dict[str, str] = field(default_factory=dict, metadata={"key": None}, repr=False)

    def as_written(self, text: str) -> str:
        """Replaces values from the environment or a file, which may be secret, by their reference like `${NAME}`.

        It leaves the addresses of Kafka, of the lake and of its store, which errors must show.
        """
        shown = (self.lake, self.storage.endpoint, self.storage.region, self.kafka.get("bootstrap.servers"))
        return masked(text, self.elsewhere, exceptions=shown)

    @property
    def base(self) -> Path:
        """The folder to which relative paths in this config refer."""
        return self.path.parent if self.path else Path.cwd()

    @property
    def sources(self) -> tuple[str, ...]:
        """The topics to read, as names and ^regexes, without names that a regex matches: these may not exist yet."""
        regexes = [name for name in self.topics if name.startswith("^")]
        return tuple(
            name for name in self.topics if name in regexes or not any(is_topic(name, regex) for regex in regexes)
        )

    def format(self, topic: Topic, part: Part) -> Format:
        """Returns the format of a topic's keys or values: its own, or that of all topics."""
        return (topic.key or self.formats.key) if part == "key" else (topic.value or self.formats.value)

    def is_text(self, topic: Topic) -> bool:
        """Returns whether a topic's values are JSON text."""
        return self.format(topic, "value") in ("json", "json-schema")

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """Short digests of the settings that decide the output, which show whether two stagings used the same.

        `transactions` covers ids and `done`: when it changes, a sync reads the records of transactions in flight again.
        """
        topics = {name: self._topic_settings(topic) for name, topic in self.topics.items()}
        uncounted = self.transactions.uncounted
        rules = [
            [rule.topic, list(rule.key), rule.python and rule.name, rule.text]
            + ([rule.null_keys] if rule.null_keys != "quarantine" else [])
            + ([rule.modules_digest] if rule.modules else [])
            for rule in self.outputs
        ]
        # Configs without modes keep the digest that they had before there were any.
        modes = [] if self.debezium == DebeziumModes() else [asdict(self.debezium)]
        return {
            "transactions": _digest(
                [
                    topics,
                    *modes,
                    self.transactions.done,
                    self.transactions.preset and _PRESET,
                    self.transactions.order,
                    *([uncounted] if uncounted else ()),
                ]
            ),
            "config": _digest([topics, *modes, self._transaction_settings]),
            "rules": _digest(rules),
        }

    @property
    def _transaction_settings(self) -> dict[str, object]:
        """The settings of transactions for the digest, without defaults of keys that older versions did not have."""
        defaults = asdict(Transactions())
        return {
            key: value
            for key, value in asdict(self.transactions).items()
            if key not in _KEYS_OMITTED_AT_DEFAULT or value != defaults[key]
        }

    def _topic_settings(self, topic: Topic) -> dict[str, object]:
        """Returns a topic's settings for the digest, without default formats."""
        formats = {
            "key": self.format(topic, "key"),
            "value": self.format(topic, "value"),
            "avro_schema": topic.schema_texts.get("value"),
            "key_avro_schema": topic.schema_texts.get("key"),
            "compression": topic.compression,
        }
        defaults = {"key": "json", "value": "json", "compression": "none"}
        settings = {key: value for key, value in asdict(topic).items() if key not in formats}
        return settings | {key: value for key, value in formats.items() if value != defaults.get(key)}

    @property
    def kafka_delivery(self) -> KafkaDelivery:
        """The settings of `sync-to kafka`."""
        return self.deliver.kafka or KafkaDelivery()

    def delivered_format(self, output: str, part: Part) -> DeliveredFormat:
        """Returns the format of an output topic's keys or values in Kafka."""
        delivery = self.kafka_delivery
        topic = delivery.topic(output)
        return (topic.key or delivery.formats.key) if part == "key" else (topic.value or delivery.formats.value)

    @property
    def delivered_registry(self) -> RegistryAccess | None:
        """The schema registry of deliveries: their own, or else that of the config."""
        return self.kafka_delivery.registry or self.registry

    @property
    def kafka_to_deliver_to(self) -> dict[str, str]:
        """The librdkafka properties of deliveries: with those of `kafka`, unless they set `bootstrap.servers`."""
        own = self.kafka_delivery.properties
        return own if "bootstrap.servers" in own else {**self.kafka, **own}

    def without_limit(self) -> "Config":
        """Returns this config without a limit of quarantine, for syncs that repeat earlier syncs in other cuts."""
        return replace(self, limits=replace(self.limits, max_quarantined=1.0))

    def with_kafka(self, **properties: str | None) -> "Config":
        """Returns this config with some librdkafka properties set (`_` for `.`); None leaves a property unchanged."""
        changed = {key.replace("_", "."): value for key, value in properties.items() if value is not None}
        return replace(self, kafka={**self.kafka, **changed})


def _digest(value: object) -> str:
    text = json.dumps(value, default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_PRESET = "debezium 3"
"""The preset, with the version of its state of transactions in flight: a staging may have the state of another."""
