"""The topics that rows go to: made as the config says or checked, and never again in silence."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import TopicMaker, start
from tests.deliver.conftest import Staging, committed, row
from tests.deliver.kafka.conftest import transfers
from tests.kafka.conftest import wait_until
from zync.deliver.kafka.delivery import Delivered, Delivery, sync_to_kafka
from zync.deliver.kafka.topics import Topics
from zync.errors import UsageError
from zync.project.load import load


def test_topics_are_made_as_the_config_says_or_checked(staging: Staging, names: list[str], topic: TopicMaker) -> None:
    accounts, history = names
    said, other = "{partitions: 3, replication: 1, cleanup_policy: compact}", f"{history}: {{as: {history}.whole}}"
    staging.config(f"deliver: {{kafka: {{topics: {{{accounts}: {said}, {other}}}}}}}\n")
    staging.sync(transfers(names, 2))
    staging.deliver()
    seen = committed(staging.broker, accounts, f"{history}.whole")
    assert len(seen) == 6
    assert len(topic.admin.list_topics(timeout=10).topics[accounts].partitions) == 3
    for wrong, found in (("partitions: 4", "partitions 3"), ("cleanup_policy: delete", "cleanup_policy compact")):
        staging.config(f"deliver: {{kafka: {{topics: {{{accounts}: {{{wrong}}}, {other}}}}}}}\n")
        staging.sync(transfers(names, 1))
        with pytest.raises(UsageError, match=f"topic {accounts} at .* is there with {found}"):
            staging.deliver()


def test_the_config_of_deliveries_is_checked(staging: Staging) -> None:
    (staging.folder / "rule.sql").write_text("SELECT seqno FROM records")
    for said, found in {
        "{topics: {acounts: {partitions: 3}}}": r"zync.yaml:4: no output 'acounts': did you mean 'accounts'\?",
        "{topics: {accounts: {as: history}}}": "accounts and history would both go to topic history",
        "{transaction_topic: history}": "zync.yaml:4: deliver.kafka.transaction_topic: 'history' is an output",
        "{topics: {history: {as: __consumer_offsets}}}": "zync.yaml:4: deliver.kafka.topics.history.as: '__consumer",
        "{transaction_topic: __zync_progress}": "progress_topic and __zync_progress would both go to topic",
        "{topics: {accounts: {as: bad name!}}}": "zync.yaml:4: deliver.kafka.topics.accounts.as: .* not 'bad name!'",
        "{properties: {partitioner: random}}": "deliver.kafka.properties.partitioner in the config is zync's own",
        "{progress_topic: ..}": r"deliver.kafka.progress_topic: .* not '\.\.'",
        "{topics: {accounts: {partition: 3}}}": "unknown key 'partition' .*did you mean 'partitions'",
    }.items():
        outputs = ", ".join(f"{{topic: {name}, sql: rule.sql}}" for name in ("accounts", "history"))
        staging.config(f"outputs: [{outputs}]\ndeliver: {{kafka: {said}}}\n")
        with pytest.raises(UsageError, match=found):
            staging.deliver()


def test_a_topic_that_cannot_be_is_the_users_mistake(staging: Staging) -> None:
    staging.sync([[row("no topic name", 1)]])
    with pytest.raises(UsageError, match="topic no topic name cannot be made"):
        staging.deliver()


def test_what_sync_from_takes_is_not_sent_there(staging: Staging, names: list[str]) -> None:
    accounts, history = names
    staging.sync(transfers(names, 1))
    for said in (f"{accounts}", f"^{accounts[:12]}.*"):
        staging.config(f"topics: {{'{said}': {{id: 'value:txn'}}}}\n")
        with pytest.raises(UsageError, match=rf"deliver\.kafka\.topics\.{accounts}\.as"):
            staging.deliver()
    staging.config(
        f"topics: {{{accounts}: {{id: 'value:txn'}}}}\n"
        f"deliver: {{kafka: {{topics: {{{accounts}: {{as: {accounts}.whole}}}}}}}}\n"
    )
    staging.deliver()
    assert len(committed(staging.broker, f"{accounts}.whole", history)) == 3


def test_nor_is_progress(staging: Staging, names: list[str]) -> None:
    staging.sync(transfers(names, 1))
    staging.config(
        f"topics: {{'^{names[0]}': {{id: 'value:txn'}}}}\ndeliver: {{kafka: {{progress_topic: {names[0]}.p}}}}\n"
    )
    with pytest.raises(UsageError, match=r"the progress would go to topic .*deliver\.kafka\.progress_topic"):
        staging.deliver()


def test_a_topic_whose_rows_are_gone_is_not_made_again_in_silence(
    staging: Staging, names: list[str], topic: TopicMaker
) -> None:
    ends = f"{names[0]}.ends"
    staging.config(f"deliver: {{kafka: {{transaction_topic: {ends}}}}}\n")
    staging.sync(transfers(names, 2))
    staging.deliver()
    staging.sync(transfers(names, 1, first=2))
    for gone, what in ((names[0], f"4 messages of output {names[0]}"), (ends, "4 messages of BEGIN and END")):
        topic.delete(gone)
        for _ in range(2):
            with pytest.raises(UsageError, match=f"topic {gone} is not there, and {what} went"):
                staging.deliver()
        topic.create(gone)
    assert staging.deliver().rows == {names[0]: 2, names[1]: 1}


@pytest.mark.parametrize("anew", [False, True])
def test_nor_is_one_that_is_deleted_meanwhile(
    staging: Staging, names: list[str], topic: TopicMaker, *, anew: bool
) -> None:
    staging.sync(transfers(names, 2))
    process = start("sync-to", "kafka", "staging", cwd=staging.folder)
    try:
        wait_until(lambda: len(committed(staging.broker, *names)) == 6)
        topic.delete(names[0])
        if anew:
            topic.create(names[0])
        staging.sync(transfers(names, 1, first=2))
        assert process.wait(60) == 2
    finally:
        process.kill()
    (log,) = staging.folder.glob("sync-to-*.log")
    assert f"topic {names[0]} was deleted, or made anew, after rows were sent to it: to send all" in log.read_text()


def test_nor_is_one_of_which_a_broker_still_names_the_former_id(
    staging: Staging, names: list[str], topic: TopicMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers hear of a new topic some time after it was made: the rows went there, and nothing else comes."""
    check_same, lags, stop = Topics.check_same, threading.Event(), threading.Event()

    def lagging(self: Topics) -> bool:
        if lags.is_set():
            lags.clear()
            return True
        return check_same(self)

    monkeypatch.setattr(Topics, "check_same", lagging)
    staging.sync(transfers(names, 2))
    delivery = Delivery(staging.path, config=load(staging.folder / "zync.yaml"))
    with ThreadPoolExecutor(1) as executor:
        delivered = executor.submit(sync_to_kafka, delivery, stop)
        try:
            wait_until(lambda: len(committed(staging.broker, *names)) == 6)
            topic.delete(names[0])
            topic.create(names[0])
            lags.set()
            staging.sync(transfers(names, 1, first=2))
            with pytest.raises(UsageError, match=f"topic {names[0]} was deleted, or made anew, after rows were sent"):
                delivered.result(30)
        finally:
            stop.set()


def test_nor_is_one_that_is_made_anew_while_much_is_sent(staging: Staging, names: list[str], topic: TopicMaker) -> None:
    """Kafka takes it as if nothing had been, and what was sent before is gone."""
    staging.sync(transfers(names, 3000))
    times: list[int] = []

    def make_anew(done: Delivered) -> None:
        if not times:
            topic.delete(names[0])
            topic.create(names[0])
        times.append(done.commits)

    config = load(staging.folder / "zync.yaml")
    delivery = Delivery(staging.path, config=config, group_rows=1, until_caught_up=True)
    with pytest.raises(UsageError, match=f"topic {names[0]} was deleted, or made anew, after rows were sent to it"):
        sync_to_kafka(delivery, on_commit=make_anew)
    assert max(times) < 3000
