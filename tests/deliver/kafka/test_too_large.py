"""A row that Kafka does not take is named."""

import threading
import time

import pytest

from tests.conftest import TopicMaker
from tests.deliver.conftest import Staging, assert_all_there, assert_whole, committed, row
from tests.deliver.kafka.conftest import transfers
from zync.deliver.kafka.producer import Sender
from zync.errors import ZyncError


@pytest.mark.parametrize("size", [200_000, 2_000_000])
def test_a_row_that_kafka_does_not_take_is_named(
    staging: Staging, names: list[str], topic: TopicMaker, size: int
) -> None:
    topic.create(names[0], max_message_bytes="100000")  # the smaller row the broker refuses, the larger the library
    staging.sync([*transfers(names, 2), [row(names[0], 1, text="x" * size)]])
    with pytest.raises(ZyncError, match=rf'topic {names[0]}, key {{"id":1}}.*too large .*message.max.bytes'):
        staging.deliver(group_rows=1)
    seen = committed(staging.broker, *names)
    assert_whole(seen, staging)
    assert {one.seqno for one in seen} == {1, 2}


def test_rows_that_a_topic_takes_one_by_one_go_there_in_batches_that_it_takes(
    staging: Staging, names: list[str], topic: TopicMaker
) -> None:
    """And of those rows the one that it does not take is named."""
    topic.create(names[0], max_message_bytes="20000")
    staging.sync([[row(names[0], 10 * of + n, text="x" * 1000) for n in range(10)] for of in range(50)])
    staging.deliver()
    assert_all_there(committed(staging.broker, *names), staging)
    staging.sync([[row(names[0], n, text="x" * (1000 if n != 5 else 30_000)) for n in range(10)]])
    before = len(committed(staging.broker, *names))
    with pytest.raises(ZyncError, match=rf'topic {names[0]}, key {{"id":5}}.*too large'):
        staging.deliver()
    assert len(committed(staging.broker, *names)) == before  # the transaction is over, too: none waits for it to be


@pytest.mark.parametrize("then", ["commit", "send"])
def test_it_is_named_by_whatever_call_hears_of_it_first(
    staging: Staging, names: list[str], topic: TopicMaker, then: str
) -> None:
    name = names[0]
    topic.create(name, max_message_bytes="1000")
    sender = Sender({"bootstrap.servers": staging.broker}, name, threading.Event())
    sender.take_over()
    sender.send([(name, '{"id":1}', "x" * 5000, [])])
    time.sleep(1)  # the broker has refused it, and nobody asked yet
    with pytest.raises(ZyncError, match=rf'topic {name}, key {{"id":1}}.*too large .*message.max.bytes'):
        sender.commit(lambda: None) if then == "commit" else sender.send([(name, '{"id":2}', "x", [])])
    sender.close()
