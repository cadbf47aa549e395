"""`zync doctor`: each thing that hurts is named, each at its severity; and what does not hurt is not."""

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from zync.config.model import Config, DebeziumConnector, Format, Formats, Topic, Transactions
from zync.errors import UsageError, ZyncError
from zync.operate import connector_config
from zync.operate.doctor import TopicSettings, as_dict, describe, diagnose, hurts, read_topics

GOOD = {
    "name": "shop",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "topic.prefix": "shop",
    "provide.transaction.metadata": "true",
    "producer.override.enable.idempotence": "true",
    "decimal.handling.mode": "string",
    "time.precision.mode": "isostring",
    "heartbeat.interval.ms": "10000",
    "skipped.operations": "none",
    "replica.identity.autoset.values": ".*:FULL",
    "tombstones.on.delete": "false",
}
"""A connector's config that nothing is to be said against."""

MYSQL = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "bigint.unsigned.handling.mode": "precise",
}
CONFIG = Config(transactions=Transactions(preset="debezium", topic="shop.transaction"))
AVRO = Config(transactions=CONFIG.transactions, formats=Formats(value="avro"))
FLATTENED = "without Debezium's envelope"
DROPPED = "it drops rows that END has counted"


def transform(kind: str) -> dict[str, str | None]:
    return {"transforms": "one", "transforms.one.type": kind}


def test_nothing_is_said_against_a_config_that_is_right() -> None:
    topics = {"shop.transaction": TopicSettings(1, {"cleanup.policy": "delete", "retention.ms": "604800000"})}
    found = diagnose(GOOD, topics, CONFIG)
    assert found == []
    assert not hurts(found)
    assert describe(found, "the topics") == "nothing in the topics will hurt"
    assert as_dict(found) == {"ok": True, "findings": []}


def test_each_of_several_connectors_is_held_to_the_topics_that_the_config_reads() -> None:
    connectors = (DebeziumConnector("crm.transaction"), DebeziumConnector("shop.transaction"))
    config = Config(transactions=Transactions(preset="debezium", connectors=connectors))
    assert diagnose(GOOD, {}, config) == []
    (found,) = diagnose({**GOOD, "topic.prefix": "store"}, {}, config)
    assert found.severity == "error"
    assert found.seen.endswith(
        "BEGIN and END to store.transaction, and transactions.connectors in the config have crm.transaction, "
        "shop.transaction"
    )


@pytest.mark.parametrize(
    ("changed", "severity", "seen"),
    [
        ({"provide.transaction.metadata": None}, "error", "provide.transaction.metadata is not true"),
        ({"provide.transaction.metadata": "false"}, "error", "provide.transaction.metadata is not true"),
        ({"topic.prefix": "store"}, "error", "BEGIN and END to store.transaction, and transactions.topic in the conf"),
        ({"topic.transaction": "tx"}, "error", "BEGIN and END to shop.tx"),
        ({"topic.delimiter": "-"}, "error", "BEGIN and END to shop-transaction"),
        (transform("io.debezium.transforms.ExtractNewRecordState"), "error", FLATTENED),
        (
            transform("io.debezium.connector.mongodb.transforms.ExtractNewDocumentState"),
            "error",
            "transform one (ExtractNewDocumentState): rows come without",
        ),
        (transform("org.apache.kafka.connect.transforms.Flatten$Value"), "error", FLATTENED),
        (transform("io.debezium.transforms.outbox.EventRouter"), "error", FLATTENED),
        (transform("io.debezium.transforms.Filter"), "error", DROPPED),
        (transform("org.apache.kafka.connect.transforms.Filter"), "error", DROPPED),
        (transform("io.confluent.connect.transforms.Filter$Value"), "error", DROPPED),
        (transform("org.apache.kafka.connect.transforms.RegexRouter"), "warning", "rows go to topics of other names"),
        (transform("io.debezium.transforms.ByLogicalTableRouter"), "warning", "rows go to topics of other names"),
        (transform("org.apache.kafka.connect.transforms.DropHeaders"), "warning", "it may drop the headers"),
        (transform("org.apache.kafka.connect.transforms.ReplaceField$Value"), "warning", "fields of Debezium's env"),
        (transform("com.example.Secret"), "note", "transform one (Secret): zync does not know what it does"),
        ({"skipped.operations": None}, "note", "skipped.operations is t, its default: TRUNCATE does not come"),
        ({"skipped.operations": "t"}, "warning", "TRUNCATE does not come"),
        ({"skipped.operations": "c,d"}, "error", "skipped.operations is c,d: inserts, deletes never come"),
        ({"producer.override.enable.idempotence": None}, "warning", "its producer is not idempotent"),
        ({"producer.override.acks": "1"}, "error", "producer.override.acks is 1"),
        ({"errors.tolerance": "all"}, "error", "errors.tolerance is all: rows that cannot be sent are left out"),
        ({"event.processing.failure.handling.mode": "warn"}, "error", "rows that cannot be sent are left out"),
        ({"decimal.handling.mode": None}, "warning", "decimals are base64 of their digits"),
        ({"decimal.handling.mode": "double"}, "warning", "decimals are rounded"),
        ({"time.precision.mode": None}, "note", "time.precision.mode is adaptive: times are numbers"),
        ({"time.precision.mode": "connect"}, "warning", "microseconds are cut off"),
        ({"heartbeat.interval.ms": None}, "warning", "PostgreSQL keeps all WAL"),
        ({"heartbeat.interval.ms": "0", **MYSQL}, "note", "heartbeat.interval.ms is 0"),
        ({"replica.identity.autoset.values": None}, "note", "REPLICA IDENTITY is not FULL"),
        ({"tombstones.on.delete": None}, "note", "tombstones.on.delete is true"),
    ],
)
def test_what_hurts_in_a_connectors_config_is_named(changed: dict[str, str | None], severity: str, seen: str) -> None:
    given = {name: value for name, value in {**GOOD, **changed}.items() if value is not None}
    (found,) = diagnose(given, {"shop.transaction": TopicSettings(1)}, CONFIG)
    assert (found.severity, found.about, seen in found.seen) == (severity, "connector shop", True), found
    assert hurts([found]) == (severity != "note")
    assert describe([found], "").splitlines() == [f"{severity:7} connector shop: {found.seen}; {found.do}"]


@pytest.mark.parametrize(
    "changed",
    [
        {"decimal.handling.mode": "precise", **MYSQL},
        {"time.precision.mode": "adaptive"},
        {"producer.override.enable.idempotence": "false", "exactly.once.support": "required"},
        {"transforms": "a, b", "transforms.a.type": "x.InsertHeader", "transforms.b.type": "x.PartitionRouting"},
        MYSQL,
    ],
)
def test_what_does_not_hurt_is_not_named(changed: dict[str, str]) -> None:
    assert diagnose({**GOOD, **changed}, None, AVRO) == []


@pytest.mark.parametrize(
    ("changed", "seen"),
    [
        ({"decimal.handling.mode": None}, "NaN and infinity in a numeric column come as null"),
        ({**MYSQL, "bigint.unsigned.handling.mode": None}, "comes as a negative number"),
        ({"time.precision.mode": "nanoseconds"}, "before 1677 and after 2262 come as null"),
    ],
)
def test_values_that_a_connector_loses_are_named(changed: dict[str, str | None], seen: str) -> None:
    given = {name: value for name, value in {**GOOD, **changed}.items() if value is not None}
    (found,) = diagnose(given, None, AVRO)
    assert (found.severity, seen in found.seen) == ("note", True), found


@pytest.mark.parametrize(
    ("topic", "transactions", "severity", "seen"),
    [
        (TopicSettings(2), {"order": "commit"}, "error", "it has 2 partitions, between which Kafka keeps no order"),
        (TopicSettings(1, {"cleanup.policy": "compact"}), {}, "error", "cleanup.policy is compact"),
        (TopicSettings(1, {"cleanup.policy": "compact,delete"}), {}, "error", "cleanup.policy is compact,delete"),
        (
            TopicSettings(1, {"retention.ms": "3600000"}),
            {},
            "warning",
            "keeps records for 1h, and a transaction may be in flight for 24h",
        ),
        (None, {}, "warning", "Kafka does not have it"),
    ],
)
def test_what_hurts_in_a_topic_is_named(
    topic: TopicSettings | None, transactions: dict[str, str], severity: str, seen: str
) -> None:
    said = Transactions(preset="debezium", topic="t", **transactions)  # type: ignore[arg-type]
    (found,) = diagnose(None, {"t": topic} if topic else {}, Config(topics={"t": Topic()}, transactions=said))
    assert (found.severity, found.about, seen in found.seen) == (severity, "topic t", True), found


@pytest.mark.parametrize(
    "topic",
    [
        TopicSettings(1, {"cleanup.policy": "delete", "retention.ms": "-1"}),
        TopicSettings(1, {"cleanup.policy": "delete", "retention.ms": "86400000"}),
        TopicSettings(3),
    ],
)
def test_a_topic_that_keeps_what_is_in_flight_does_not_hurt(topic: TopicSettings) -> None:
    said = Transactions(expire_after=timedelta(hours=24))
    assert diagnose(None, {"t": topic}, Config(topics={"t": Topic(), "^shop": Topic()}, transactions=said)) == []


def test_each_of_several_topics_of_begin_and_end_has_one_partition() -> None:
    """As sync-from refuses them."""
    connectors = (DebeziumConnector("a.transaction"), DebeziumConnector("b.transaction"))
    said = Transactions(preset="debezium", connectors=connectors, order="commit")
    partitions = {"a.transaction": TopicSettings(3), "b.transaction": TopicSettings(1)}
    (found,) = diagnose(None, partitions, Config(topics=dict.fromkeys(partitions, Topic()), transactions=said))
    assert (found.severity, found.about) == ("error", "topic a.transaction")


def test_sync_from_does_not_end_on_a_topic_that_a_regex_would_find() -> None:
    (found,) = diagnose(None, {}, Config(topics={"^shop": Topic(), "shop.audit": Topic()}))
    assert (found.severity, found.about) == ("note", "topic shop.audit")
    assert found.seen == "Kafka does not have it, and its view is empty until it comes"


@pytest.mark.parametrize(("all_topics", "own", "hurt"), [("json", "avro", False), ("avro", "json", True)])
def test_a_topics_own_format_counts(all_topics: Format, own: Format, hurt: bool) -> None:
    topics = {"^shop": Topic(envelope=True, value=own)}
    config = Config(transactions=CONFIG.transactions, formats=Formats(value=all_topics), topics=topics)
    found = diagnose({**GOOD, "decimal.handling.mode": "precise"}, None, config)
    assert hurts(found) == hurt


def test_errors_come_first() -> None:
    found = diagnose({"name": "x"}, {"shop.transaction": TopicSettings(1, {"cleanup.policy": "compact"})}, CONFIG)
    severities = [one.severity for one in found]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)
    assert {"error", "warning", "note"} == set(severities)


def test_the_topics_are_those_that_the_config_reads() -> None:
    config = Config(topics={"menu": Topic(), r"^shop\.": Topic()})
    assert read_topics(config, {"menu": 1, "shop.a": 1, "shops": 1, "other": 1}) == ["menu", "shop.a"]


# ----------------------------------------------------------------------------- where a connector's config comes from


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("c.json", '{"topic.prefix": "shop", "tasks.max": 1, "a": true}', {"topic.prefix": "shop", "tasks.max": "1"}),
        ("c.json", '{"name": "n", "config": {"topic.prefix": "shop"}}', {"name": "n", "topic.prefix": "shop"}),
        (
            "c.properties",
            "# a comment\ntopic.prefix = shop\n! another\n\nname:n",
            {"topic.prefix": "shop", "name": "n"},
        ),
        ("c.properties", "transforms=a,\\\n   b\nx\\=y=1\\\\2", {"transforms": "a,b", "x=y": "1\\2"}),
        ("c.properties", "empty=\nbare", {"empty": "", "bare": ""}),
    ],
)
def test_a_config_is_read_from_a_file(tmp_path: Path, name: str, text: str, expected: dict[str, str]) -> None:
    path = tmp_path / name
    path.write_text(text)
    found = connector_config.from_file(path)
    assert {key: value for key, value in found.items() if key != "a"} == expected
    assert found.get("a", "true") == "true"


@pytest.mark.parametrize(("text", "said"), [("{", "is no JSON"), ("[]", "is no connector's config"), (None, "be read")])
def test_a_file_that_is_none_is_the_users_mistake(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "c.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=said):
        connector_config.from_file(path)


class Connect(BaseHTTPRequestHandler):
    """Answers like Kafka Connect's REST API."""

    def do_GET(self) -> None:
        known = {
            "/connectors/shop/config": GOOD,
            "/connectors/a%20b/config": {"name": "a b"},
            "/connectors/x/config": 1,
        }
        found = known.get(self.path)
        self.send_response(404 if found is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(found or {"error_code": 404}).encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def connect() -> Iterator[str]:
    server = HTTPServer(("localhost", 0), Connect)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://localhost:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_config_is_read_from_connect(connect: str) -> None:
    assert connector_config.from_connect(connect, "shop") == GOOD
    assert connector_config.from_connect(f"{connect}/", "a b") == {"name": "a b"}
    with pytest.raises(UsageError, match="has no connector 'other'"):
        connector_config.from_connect(connect, "other")
    with pytest.raises(UsageError, match="is no connector's config"):
        connector_config.from_connect(connect, "x")


def test_a_connect_that_does_not_answer_is_no_mistake_of_the_users() -> None:
    with pytest.raises(ZyncError, match="Kafka Connect at http://localhost:1 does not answer") as failed:
        connector_config.from_connect("http://localhost:1", "shop")
    assert failed.value.exit_code == 1
    with pytest.raises(UsageError, match="is no URL"):
        connector_config.from_connect("localhost:8083", "shop")
