"""What the config sets of Kafka's properties is librdkafka's to judge; and what zync itself works with is a number."""

import pytest

from zync.deliver.kafka import progress
from zync.deliver.kafka.producer import check_properties as check_of_deliveries
from zync.errors import UsageError
from zync.ingest.consume import Ingest, sync_from_kafka
from zync.ingest.group import check_properties
from zync.kafka.properties import milliseconds

NOBODY = {"bootstrap.servers": "localhost:1"}


def test_milliseconds_are_those_of_the_config_or_the_default() -> None:
    assert milliseconds({"a.ms": "250"}, "a.ms", 10) == 250
    assert milliseconds({"a.ms": "-1"}, "a.ms", 10) == -1
    assert milliseconds({}, "a.ms", 10) == 10


@pytest.mark.parametrize("text", ["often", "", "30 seconds", "1e5", "0x10", "010", "1_000", "1.5", "nan"])
def test_what_is_no_number_of_milliseconds_is_the_users_mistake(text: str) -> None:
    with pytest.raises(UsageError, match=f"kafka in the config: a.ms is a whole number of milliseconds, not '{text}'"):
        milliseconds({"a.ms": text}, "a.ms", 10)


@pytest.mark.parametrize("name", ["topic.metadata.refresh.interval.ms", "max.poll.interval.ms", "session.timeout.ms"])
def test_sync_from_refuses_a_number_that_is_none_before_it_looks_for_a_broker(name: str) -> None:
    with pytest.raises(UsageError, match=f'kafka in the config: .*"{name}"'):
        sync_from_kafka(Ingest("nowhere", {**NOBODY, name: "often"}, ("t",)))


def test_a_delivery_refuses_properties_that_no_consumer_of_its_progress_takes() -> None:
    """By itself each is a number, so the admin client took them."""
    with pytest.raises(UsageError, match="kafka in the config: .*max.poll.interval.ms"):
        progress.read({**NOBODY, "max.poll.interval.ms": "1000"}, "__zync_progress", "d", 0)


@pytest.mark.parametrize("name", ["group.id", "auto.offset.reset", "isolation.level", "enable.auto.commit"])
def test_what_exactly_once_needs_of_the_consumer_is_not_the_configs_to_set(name: str) -> None:
    with pytest.raises(UsageError, match=f"kafka.{name} in the config is zync's own to set: take it out"):
        check_properties({**NOBODY, name: "x"})


@pytest.mark.parametrize("name", ["transactional.id", "enable.idempotence", "partitioner", "allow.auto.create.topics"])
def test_what_exactly_once_needs_of_the_producer_is_not_the_configs_to_set(name: str) -> None:
    with pytest.raises(UsageError, match=f"deliver.kafka.properties.{name} in the config is zync's own to set"):
        check_of_deliveries({**NOBODY, name: "x"})


def test_other_properties_are_the_configs_to_set() -> None:
    check_properties({**NOBODY, "fetch.min.bytes": "1", "security.protocol": "SSL"})
    check_of_deliveries({**NOBODY, "linger.ms": "1", "transaction.timeout.ms": "10000"})
