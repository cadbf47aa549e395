"""`zync.yaml`, as typed and frozen values: every field has one meaning and one place.

`zync.project.load` reads the file into these; nothing else makes them, except tests and notebooks.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Literal

from zync.config.secrets import masked
from zync.errors import UsageError

RESERVED_TOPIC = "__zync"
"""The topic of records that operators' commands append to raw."""
PROGRESS_TOPIC = "__zync_progress"
"""The Kafka topic that says how far deliveries are."""
KAFKAS_OWN = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__remote_log_metadata"}
)
"""Topics of Kafka's own, which are nobody's input or output."""


Format = Literal["json", "avro", "protobuf", "json-schema", "connect-json", "string", "bytes"]


DeliveredFormat = Literal["json", "avro", "protobuf", "json-schema"]


@dataclass(frozen=True)
class Formats:
    """What keys and values are, of topics that do not say it themselves."""

    key: Format = "json"
    value: Format = "json"


@dataclass(frozen=True)
class RegistryAccess:
    """Where a schema registry is, and what it asks for. `basic_auth`: user:password; the others are PEM files."""

    url: str
    basic_auth: str | None = field(default=None, repr=False)
    ca: Path | None = None
    certificate: Path | None = None
    certificate_key: Path | None = None
    timeout: timedelta = timedelta(seconds=10)


@dataclass(frozen=True)
class Topic:
    """An input topic: where its records say which transaction they belong to.

    `key`, `value`: their formats, where not those of `Config.formats`; `avro_schema`, `key_avro_schema`: files with the
    schema of values and keys that are Avro without a registry's header; `compression`: what was done to values before
    they were sent.

    `envelope`: its values are those of a Debezium connector (set by the preset, not in the file).
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

    def schema_file(self, part: Literal["key", "value"]) -> Path | None:
        """The file with the Avro schema of its keys or values."""
        return self.key_avro_schema if part == "key" else self.avro_schema

    @cached_property
    def schema_texts(self) -> dict[Literal["key", "value"], str]:
        """The texts of `schema_file`, by part, read once: what decodes is what was digested."""
        parts: tuple[Literal["key", "value"], ...] = ("key", "value")
        return {part: file.read_text(encoding="utf-8") for part in parts if (file := self.schema_file(part))}


@dataclass(frozen=True)
class Transactions:
    """When a transaction is done, and how long zync waits for it and remembers it.

    `preset` says it instead of `done`; `topic` is then the one of BEGIN and END.
    """

    done: str = "false"
    preset: Literal["debezium"] | None = None
    topic: str | None = None
    order: Literal["completion", "commit"] = "completion"
    expire_after: timedelta = timedelta(hours=24)
    remember: int = 1_000_000

    def check_partitions(self, partitions: int) -> None:
        """UsageError where the order of commit is asked for, and the topic that says it has so many partitions."""
        if self.order == "commit" and partitions > 1:
            msg = (
                f"transactions.order: commit needs topic {self.topic} to have one partition, for Kafka keeps no order "
                f"between partitions, and it has {partitions}: make it with one, or take order: completion"
            )
            raise UsageError(msg)


@dataclass(frozen=True)
class Lookup:
    """A table that rules may join: exactly one of the three says where it is."""

    csv: Path | None = None
    json: Path | None = None
    delta: str | None = None


@dataclass(frozen=True)
class OutputRule:
    """A rule: one SELECT (or one Python function) that feeds one output topic."""

    topic: str
    sql: Path | None = None
    python: str | None = None
    key: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What messages call this rule: its file as the config names it."""
        return self.sql.name if self.sql else Path(str(self.python)).name

    @property
    def file(self) -> Path:
        """Where it is written."""
        return self.sql or Path(str(self.python).partition(":")[0])

    @cached_property
    def text(self) -> str:
        """What the file says, read once: what runs is what was digested, whoever saves the file meanwhile."""
        return self.file.read_text(encoding="utf-8-sig")


@dataclass(frozen=True)
class DeliveredTopic:
    """The Kafka topic that an output topic of staging goes to: `as_` its name there, where that is another.

    It is made with these partitions, replication and cleanup policy (None: as the brokers have it), or checked.
    `key`, `value`: their formats, where not those of `KafkaDelivery.formats`.
    """

    as_: str | None = field(default=None, metadata={"key": "as"})
    partitions: int | None = None
    replication: int | None = None
    cleanup_policy: Literal["delete", "compact", "compact,delete"] | None = None
    key: DeliveredFormat | None = None
    value: DeliveredFormat | None = None


@dataclass(frozen=True)
class DeliveredFormats:
    """What keys and values become, of topics that do not say it themselves."""

    key: DeliveredFormat = "json"
    value: DeliveredFormat = "json"


@dataclass(frozen=True)
class KafkaDelivery:
    """`sync-to kafka`: where to, if `properties` (librdkafka's) name another Kafka, and as what.

    name: of this delivery, its transactional id; by default it comes from raw's table id. `formats`: of messages;
    those other than JSON have their schemas in `registry`, or else in that of the config.
    """

    properties: dict[str, str] = field(default_factory=dict)
    name: str | None = None
    progress_topic: str = PROGRESS_TOPIC
    transaction_topic: str | None = None
    topics: dict[str, DeliveredTopic] = field(default_factory=dict)
    formats: DeliveredFormats = field(default_factory=DeliveredFormats)
    registry: RegistryAccess | None = None

    def name_of(self, raw_id: str | None) -> str:
        """The delivery's name, of a staging that was made of the raw with that table id."""
        return self.name or f"zync-{raw_id}"

    def topic(self, output: str) -> DeliveredTopic:
        """What is said of that output topic."""
        return self.topics.get(output, DeliveredTopic())

    def target(self, output: str) -> str:
        """The name that an output topic has in Kafka."""
        return self.topic(output).as_ or output


@dataclass(frozen=True)
class DeliveredTable:
    """The Delta table that an output topic of staging goes to, `<lake>/tables/<topic>`.

    apply: upsert (one row for each key, the newest; by default where the rules have a key), append (all rows), or
    history (a row for each version of a key, with where it holds).
    schema_changes: what to do when the rules select a column more than there is, or a wider type of one.
    """

    apply: Literal["upsert", "append", "history"] | None = None
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    schema_changes: Literal["add-columns", "fail"] = "add-columns"


@dataclass(frozen=True)
class Deliver:
    """Where whole transactions go from staging. `tables`: what is said of those of some output topics.

    `zync run` delivers to what is not None here; `zync sync-to` to what it is told.
    """

    kafka: KafkaDelivery | None = None
    tables: dict[str, DeliveredTable] | None = None


@dataclass(frozen=True)
class Limits:
    """How much may be set aside before a sync stops instead.

    max_quarantined: so many transactions and records by themselves; or, a float (in the file 5%), that share of
    those that the sync settles.
    """

    max_quarantined: float | int = 100

    def quarantined(self, settled: int) -> int:
        """The most that may go to quarantine of so many transactions and records by themselves."""
        given = self.max_quarantined
        return int(given * settled) if isinstance(given, float) else given


@dataclass(frozen=True)
class Config:
    """The whole of `zync.yaml`. Paths are absolute; `${NAME}` and `${file:PATH}` have been read: `elsewhere`."""

    lake: str = "./lake"
    kafka: dict[str, str] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    formats: Formats = field(default_factory=Formats)
    registry: RegistryAccess | None = None
    transactions: Transactions = field(default_factory=Transactions)
    lookups: dict[str, Lookup] = field(default_factory=dict)
    outputs: tuple[OutputRule, ...] = ()
    deliver: Deliver = field(default_factory=Deliver)
    limits: Limits = field(default_factory=Limits)
    spark: dict[str, str] = field(default_factory=dict)
    path: Path | None = field(default=None, metadata={"key": None})
    elsewhere: dict[str, str] = field(default_factory=dict, metadata={"key": None}, repr=False)

    def as_written(self, text: str) -> str:
        """`text` with what was read from the environment or a file as the config has it, `${NAME}`: it may be secret.

        (It is none where Kafka and the lake are, which errors have to say.)
        """
        return masked(text, self.elsewhere, but=(self.lake, self.kafka.get("bootstrap.servers")))

    @property
    def base(self) -> Path:
        """The folder that relative paths in this config are relative to."""
        return self.path.parent if self.path else Path.cwd()

    @property
    def sources(self) -> tuple[str, ...]:
        """Topics to read, as names and ^regexes; a name that a regex covers is not among them: it may come later."""
        regexes = [name for name in self.topics if name.startswith("^")]
        return tuple(
            name for name in self.topics if name in regexes or not any(re.search(regex, name) for regex in regexes)
        )

    def format(self, topic: Topic, part: Literal["key", "value"]) -> Format:
        """The format of that topic's keys or values: its own, or that of all topics."""
        return (topic.key or self.formats.key) if part == "key" else (topic.value or self.formats.value)

    def is_text(self, topic: Topic) -> bool:
        """Whether the values of that topic are JSON text."""
        return self.format(topic, "value") in ("json", "json-schema")

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """Short digests of what decides the output: they tell when a difference comes from there.

        `transactions` covers ids and `done`: when it changes, what is in flight is read again.
        """
        topics = {name: self._said(one) for name, one in self.topics.items()}
        rules = [[rule.topic, list(rule.key), rule.python and rule.name, rule.text] for rule in self.outputs]
        return {
            "transactions": _digest(
                [topics, self.transactions.done, self.transactions.preset and _PRESET, self.transactions.order]
            ),
            "config": _digest([topics, asdict(self.transactions)]),
            "rules": _digest(rules),
        }

    def _said(self, topic: Topic) -> dict[str, object]:
        """What the topic says, without formats that are as they always were."""
        formats = {
            "key": self.format(topic, "key"),
            "value": self.format(topic, "value"),
            "avro_schema": topic.schema_texts.get("value"),
            "key_avro_schema": topic.schema_texts.get("key"),
            "compression": topic.compression,
        }
        usual = {"key": "json", "value": "json", "compression": "none"}
        said = {key: value for key, value in asdict(topic).items() if key not in formats}
        return said | {key: value for key, value in formats.items() if value != usual.get(key)}

    @property
    def kafka_delivery(self) -> KafkaDelivery:
        """What is said of `sync-to kafka`."""
        return self.deliver.kafka or KafkaDelivery()

    def delivered_format(self, output: str, part: Literal["key", "value"]) -> DeliveredFormat:
        """What the keys or values of an output topic become in Kafka."""
        said = self.kafka_delivery
        topic = said.topic(output)
        return (topic.key or said.formats.key) if part == "key" else (topic.value or said.formats.value)

    @property
    def delivered_registry(self) -> RegistryAccess | None:
        """The schema registry of deliveries: that of the config, unless another is named for them."""
        return self.kafka_delivery.registry or self.registry

    @property
    def kafka_to_deliver_to(self) -> dict[str, str]:
        """Properties for deliveries: those of `kafka`, unless another Kafka is named for them."""
        own = self.kafka_delivery.properties
        return own if "bootstrap.servers" in own else {**self.kafka, **own}

    def without_limit(self) -> "Config":
        """This config, with as much in quarantine as there is: for syncs of what was synced before, in other cuts."""
        return replace(self, limits=Limits(max_quarantined=1.0))

    def with_kafka(self, **properties: str | None) -> "Config":
        """This config with some librdkafka properties set; a None leaves the property as it is."""
        given = {key.replace("_", "."): value for key, value in properties.items() if value is not None}
        return replace(self, kafka={**self.kafka, **given})


def _digest(value: object) -> str:
    text = json.dumps(value, default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_PRESET = "debezium 2"
"""The preset, and of which kind the state is that it keeps of transactions in flight: staging may have others."""
