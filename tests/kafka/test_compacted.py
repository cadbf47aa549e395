"""Topics that Kafka compacts lose rows without a gap that tells: they are named at the start and by `txn show`."""

from typing import Any

import pytest
from confluent_kafka import Producer

from tests.conftest import TopicMaker, produce
from tests.kafka.conftest import Lake


def test_a_compacted_topic_is_warned_of_at_the_start(
    lake: Lake, topic: TopicMaker, caplog: pytest.LogCaptureFixture
) -> None:
    compacted, other = topic(cleanup_policy="compact,delete"), topic()
    with caplog.at_level("WARNING"):
        lake.sync_from(compacted, other)
    (said,) = [one.getMessage() for one in caplog.records if "compacted" in one.getMessage()]
    assert said.startswith("1 topic is compacted (cleanup.policy)")
    assert said.endswith(f": {compacted}")


def test_txn_show_names_the_compacted_topics_of_what_waits(lake: Lake, topic: TopicMaker, warm: Any) -> None:
    compacted, other = topic(cleanup_policy="compact"), topic()
    lake.config()
    with (lake.folder / "zync.yaml").open("a") as file:
        file.write(f'topics: {{{compacted}: {{id: "value:t"}}, {other}: {{id: "value:t"}}}}\n')
        file.write("transactions: {done: count(*) = 3}\noutputs: [{topic: out, sql: r.sql}]\n")
    (lake.folder / "r.sql").write_text(f"SELECT seqno FROM `{other}`")  # noqa: S608 - a topic of the test's own
    produce(lake.broker, [(other, 0, {"t": 1})])
    producer = Producer({"bootstrap.servers": lake.broker})
    producer.produce(compacted, b'{"t": 1}', b'"k"')
    assert producer.flush(20) == 0
    lake.sync_from(compacted, other)
    warm("sync", "raw", "staging", cwd=lake.folder)
    seen = warm("txn", "show", "1", cwd=lake.folder).stdout
    said = "is compacted: rows of it may have been taken away before they were read"
    assert f"missing: topic {compacted} {said}" in seen
    assert f"{other} is compacted" not in seen
