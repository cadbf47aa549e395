"""What a config says of limits, deliveries and formats, by its own words or by what is said of all."""

from pathlib import Path

import pytest

from zync.config.model import (
    Config,
    Deliver,
    DeliveredFormats,
    DeliveredTopic,
    Formats,
    KafkaDelivery,
    Limits,
    OutputRule,
    RegistryAccess,
    Topic,
    Transactions,
)
from zync.errors import UsageError


@pytest.mark.parametrize(
    ("most", "settled", "expected"), [(100, 5, 100), (0, 5, 0), (0.05, 100, 5), (0.05, 19, 0), (1.0, 7, 7)]
)
def test_a_limit_is_a_number_or_a_share_of_what_a_sync_settles(most: float, settled: int, expected: int) -> None:
    assert Limits(most).quarantined(settled) == expected


def test_without_a_limit_as_much_may_be_in_quarantine_as_there_is() -> None:
    assert Config(limits=Limits(0)).without_limit().limits.quarantined(1000) == 1000


def test_a_topics_own_format_is_before_that_of_all() -> None:
    config = Config(formats=Formats(key="string", value="avro"))
    assert config.format(Topic(), "value") == "avro"
    assert config.format(Topic(value="json"), "value") == "json"
    assert config.format(Topic(value="json"), "key") == "string"
    assert [config.is_text(topic) for topic in (Topic(), Topic(value="json-schema"))] == [False, True]


def test_a_delivered_topics_own_format_name_and_registry_are_before_those_of_all() -> None:
    access, other = RegistryAccess("http://a"), RegistryAccess("http://b")
    delivery = KafkaDelivery(
        topics={"order": DeliveredTopic(as_="shop.order", value="json")},
        formats=DeliveredFormats(value="avro"),
        transaction_topic="transactions",
    )
    config = Config(registry=access, deliver=Deliver(kafka=delivery))
    assert config.delivered_format("order", "value") == "json"
    assert config.delivered_format("line", "value") == "avro"
    assert [delivery.target(output) for output in ("order", "line")] == ["shop.order", "line"]
    assert config.delivered_registry == access
    assert Config(registry=access, deliver=Deliver(KafkaDelivery(registry=other))).delivered_registry == other


def test_a_delivery_is_named_after_raw_unless_the_config_names_it() -> None:
    assert KafkaDelivery().name_of("5a6e") == "zync-5a6e"
    assert KafkaDelivery(name="shop").name_of("5a6e") == "shop"


def test_deliveries_go_to_the_kafka_of_the_config_unless_another_is_named() -> None:
    kafka = {"bootstrap.servers": "a:1", "security.protocol": "SSL"}
    more = Config(kafka=kafka, deliver=Deliver(KafkaDelivery({"linger.ms": "1"})))
    assert more.kafka_to_deliver_to == {**kafka, "linger.ms": "1"}
    other = Config(kafka=kafka, deliver=Deliver(KafkaDelivery({"bootstrap.servers": "b:1"})))
    assert other.kafka_to_deliver_to == {"bootstrap.servers": "b:1"}


def test_options_are_over_the_configs_properties_where_they_are_given() -> None:
    config = Config(kafka={"bootstrap.servers": "a:1"})
    assert config.with_kafka(bootstrap_servers=None).kafka == {"bootstrap.servers": "a:1"}
    assert config.with_kafka(bootstrap_servers="b:1", group_instance_id="x").kafka == {
        "bootstrap.servers": "b:1",
        "group.instance.id": "x",
    }


def test_the_order_of_commit_needs_a_topic_of_one_partition() -> None:
    said = Transactions(preset="debezium", topic="shop.transaction", order="commit")
    said.check_partitions({"shop.transaction": 1})
    Transactions().check_partitions({"shop.transaction": 12})
    with pytest.raises(UsageError, match="needs topic shop.transaction to have one partition, .* and it has 2"):
        said.check_partitions({"shop.transaction": 2})


def test_a_rule_has_the_name_of_its_file() -> None:
    assert OutputRule("o", sql=Path("/etl/order.sql")).name == "order.sql"
    python = OutputRule("o", python="/etl/rules.py:order")
    assert (python.name, python.file) == ("rules.py:order", Path("/etl/rules.py"))
