"""sync-to kafka: what is whole in staging is whole in Kafka, exactly once, in order."""

import json
import logging
import os
import random
import re
import signal
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.conftest import TopicMaker, start, zync
from tests.deliver.conftest import Seen, Staging, assert_all_there, assert_whole, committed, row
from tests.kafka.conftest import connections, get, wait_until
from zync.deliver.kafka.delivery import Delivered, Delivery, sync_to_kafka
from zync.deliver.kafka.producer import AgainError, Sender
from zync.errors import OwnedError, UsageError, ZyncError
from zync.kafka.dev_broker import DevKafka, free_port
from zync.operate.status import status
from zync.project.load import load
from zync.raw.table import ensure_raw


@pytest.fixture
def names() -> list[str]:
    """Two topics that no other test has."""
    return [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("accounts", "history")]


def transfers(names: list[str], count: int, first: int = 0) -> list[list[tuple[str, str | None, str | None]]]:
    """Transactions of three rows over two topics."""
    accounts, history = names
    return [
        [row(accounts, n % 7, balance=-n), row(accounts, n % 5 + 100, balance=n), row(history, n, delta=n)]
        for n in range(first, first + count)
    ]


def test_a_message_names_the_columns_that_the_connector_left_out(staging: Staging, names: list[str]) -> None:
    accounts, _ = names
    left_out = (*row(accounts, 1, note=None, loud=None), '{"left_out":["note","loud"]}')
    staging.sync([[row(accounts, 1, note="a", loud="A"), left_out, row(accounts, 2, note="b", loud="B")]])
    staging.deliver()
    found = [one.headers.get("zync.left_out") for one in committed(staging.broker, accounts)]
    assert found == [None, b'["note", "loud"]', None]


def test_rows_go_out_in_order_with_key_value_and_what_they_are_of(staging: Staging, names: list[str]) -> None:
    accounts, history = names
    staging.sync([[row(accounts, 1, b="ü"), (history, None, '{"x":1}')], [(accounts, '{"id":1}', None)]])
    done = staging.deliver()
    assert (done.transactions, done.rows, done.commits, done.seqno) == (2, {accounts: 2, history: 1}, 1, 2)
    first, second, third = committed(staging.broker, accounts, history)
    of_first = {"zync.seqno": b"1", "zync.txn": b"t1", "zync.position": b"1001"}
    assert first == Seen(accounts, 0, 0, b'{"id":1}', b'{"id": 1, "b": "\\u00fc"}', of_first)
    of_second = {"zync.seqno": b"2", "zync.txn": b"t2", "zync.position": b"1002"}
    assert second == Seen(accounts, 0, 1, b'{"id":1}', None, of_second)
    assert third == Seen(history, 0, 0, None, b'{"x":1}', of_first)


def test_what_was_delivered_is_not_delivered_again(staging: Staging, names: list[str]) -> None:
    staging.sync(transfers(names, 10))
    assert staging.deliver().transactions == 10
    assert staging.deliver().transactions == 0
    staging.sync(transfers(names, 5, first=10))
    assert staging.deliver().transactions == 5
    assert_all_there(committed(staging.broker, *names), staging)


def test_status_says_how_far_it_is(staging: Staging, names: list[str]) -> None:
    staging.config("deliver: {kafka: {}}\n")

    def told() -> dict[str, dict[str, int]]:
        return status("nowhere", staging.path, load(staging.folder / "zync.yaml")).delivered

    staging.sync(transfers(names, 2))
    assert told() == {}
    staging.deliver()
    assert told() == {"kafka": {"sync": 1, "behind": 0}}
    staging.sync(transfers(names, 2, first=2))
    assert told() == {"kafka": {"sync": 1, "behind": 1}}


@pytest.mark.parametrize(("options", "commits"), [({"group_rows": 1}, 10), ({"group_rows": 7}, 4), ({}, 1)])
def test_a_kafka_transaction_holds_whole_transactions(
    staging: Staging, names: list[str], options: dict[str, int], commits: int
) -> None:
    staging.sync(transfers(names, 10))
    assert staging.deliver(**options).commits == commits
    assert_all_there(committed(staging.broker, *names), staging)


def test_the_commands_groups(staging: Staging, names: list[str]) -> None:
    staging.sync(transfers(names, 4))
    one_by_one = json.loads(staging.zync("--until-caught-up", "--one-by-one", "--json").stdout)
    assert (one_by_one["transactions"], one_by_one["commits"]) == (4, 4)
    assert one_by_one["rows"] == {names[0]: 8, names[1]: 4}
    staging.sync(transfers(names, 4, first=4))
    assert json.loads(staging.zync("--until-caught-up", "--group-rows", "6", "--json").stdout)["commits"] == 2
    both = staging.zync("--group-rows", "6", "--one-by-one", check=False)
    assert both.returncode == 2
    assert "--one-by-one" in both.stderr


def murmur2(data: bytes) -> int:
    """Kafka's hash of keys (org.apache.kafka.common.utils.Utils.murmur2), as a number without sign."""
    mask, m, h = 0xFFFFFFFF, 0x5BD1E995, 0x9747B28C ^ len(data)
    for at in range(0, len(data) - len(data) % 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    if rest := data[len(data) - len(data) % 4 :]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def test_keys_go_to_the_partitions_that_java_clients_choose(
    staging: Staging, names: list[str], topic: TopicMaker
) -> None:
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    assert {key: murmur2(key) for key in known} == {key: value % 2**32 for key, value in known.items()}
    for name in names:
        topic.create(name, partitions=5)
    staging.sync(transfers(names, 50))
    staging.deliver()
    seen = committed(staging.broker, *names)
    assert_all_there(seen, staging)
    assert len({one.partition for one in seen}) == 5
    for one in seen:
        assert one.key is not None
        assert one.partition == (murmur2(one.key) & 0x7FFFFFFF) % 5


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
    delivery = Delivery(staging.path, config.kafka_to_deliver_to, config, group_rows=1, until_caught_up=True)
    with pytest.raises(UsageError, match=f"topic {names[0]} was deleted, or made anew, after rows were sent to it"):
        sync_to_kafka(delivery, on_commit=make_anew)
    assert max(times) < 3000


@pytest.mark.parametrize("anew", [False, True])
def test_a_progress_topic_that_is_deleted_meanwhile_is_told_again(
    staging: Staging, names: list[str], topic: TopicMaker, *, anew: bool
) -> None:
    """Also where somebody made it otherwise, which ends the run: it is not compacted."""
    progress = f"{names[0]}.p"
    staging.config(f"deliver: {{kafka: {{progress_topic: {progress}}}}}\n")
    staging.sync(transfers(names, 2))
    process = start("sync-to", "kafka", "staging", cwd=staging.folder)
    try:
        wait_until(lambda: len(committed(staging.broker, *names)) == 6)
        topic.delete(progress)
        if anew:
            topic.create(progress, cleanup_policy="delete")
        staging.sync(transfers(names, 1, first=2))
        if anew:
            assert process.wait(60) == 2
        else:
            wait_until(lambda: len(committed(staging.broker, *names)) == 9)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    finally:
        process.kill()
    said = next(staging.folder.glob("sync-to-*.log")).read_text()
    assert f"topic {progress} was deleted, or made anew: it is told again how far" in said
    if anew:
        assert "is there with cleanup_policy delete, and not compact" in said
        change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, progress, incremental_configs=[change])
        topic.admin.incremental_alter_configs([resource])[resource].result(20)
    assert staging.deliver().transactions == (1 if anew else 0)
    assert_all_there(committed(staging.broker, *names), staging)


@pytest.mark.parametrize("anew", [False, True])
def test_that_progress_is_gone_after_a_transaction_that_did_not_go_through_ends_it(
    staging: Staging, names: list[str], topic: TopicMaker, monkeypatch: pytest.MonkeyPatch, *, anew: bool
) -> None:
    """Whether that was committed is not known then: to send all again in silence would be worse than to end."""
    staging.config(f"deliver: {{kafka: {{progress_topic: {names[0]}.p}}}}\n")
    staging.sync(transfers(names, 2))
    commit = Sender.commit

    def fails_once(sender: Sender, meanwhile: Callable[[], Any]) -> Any:
        done = commit(sender, meanwhile)
        monkeypatch.undo()
        topic.delete(f"{names[0]}.p")
        if anew:
            topic.create(f"{names[0]}.p", cleanup_policy="compact")
        monkeypatch.setattr(Sender, "commit", fails)
        return done

    def fails(sender: Sender, meanwhile: Callable[[], Any]) -> Any:
        monkeypatch.undo()
        msg = "the broker went away"
        raise AgainError(msg)

    monkeypatch.setattr(Sender, "commit", fails_once)
    with pytest.raises(UsageError, match=r"does not say any more how far .* was through sync 1 \(seqno 1\)"):
        staging.deliver(group_rows=1)


def test_a_progress_topic_that_is_not_compacted_is_refused(
    staging: Staging, names: list[str], topic: TopicMaker
) -> None:
    topic.create(f"{names[0]}.p", cleanup_policy="delete")
    staging.config(f"deliver: {{kafka: {{progress_topic: {names[0]}.p}}}}\n")
    staging.sync(transfers(names, 1))
    with pytest.raises(UsageError, match="is there with cleanup_policy delete, .*: change it, and do not"):
        staging.deliver()


def test_that_all_is_sent_for_want_of_progress_is_said(
    staging: Staging, names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "zync")
    staging.sync(transfers(names, 2))
    staging.deliver()
    assert not caplog.records
    staging.config(f"deliver: {{kafka: {{name: {names[0]}}}}}\n")
    assert staging.deliver().transactions == 2
    (said,) = caplog.messages
    assert f"there is no progress of the delivery {names[0]}" in said
    assert f"topics that have records: {', '.join(sorted(names))}" in said


def test_another_staging_or_an_older_one_is_refused(staging: Staging, names: list[str], tmp_path: Path) -> None:
    staging.config(f"deliver: {{kafka: {{name: {names[0]}}}}}\n")
    staging.sync(transfers(names, 1))
    staging.sync(transfers(names, 1, first=1))
    staging.deliver()
    last = Path(staging.path) / "_delta_log" / f"{2:020}.json"
    kept = last.read_bytes()
    last.unlink()
    with pytest.raises(ZyncError, match="ends with sync 1, and was delivered through sync 2"):
        staging.deliver()
    last.write_bytes(kept)
    other = Staging(tmp_path / "other", staging.broker)
    other.folder.mkdir()
    other.sync(transfers(names, 1))
    other.config(f"deliver: {{kafka: {{name: {names[0]}}}}}\n")
    process = start("sync-to", "kafka", "staging", cwd=staging.folder)
    try:
        staging.sync(transfers(names, 1, first=2))
        wait_until(lambda: len(committed(staging.broker, *names)) == 9)
        with pytest.raises(UsageError, match="is of another staging"):
            other.deliver()
        staging.sync(transfers(names, 1, first=3))  # and does not end the one that has the name
        wait_until(lambda: len(committed(staging.broker, *names)) == 12)
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
    assert_all_there(committed(staging.broker, *names), staging)


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


def test_the_first_deliverer_is_fenced_by_the_second(staging: Staging, names: list[str]) -> None:
    staging.sync(transfers(names, 2000))
    first = start("sync-to", "kafka", "staging", "--one-by-one", cwd=staging.folder)
    try:
        wait_until(lambda: len(committed(staging.broker, *names)) > 30)
        first.send_signal(signal.SIGSTOP)
        done = staging.deliver()
        assert 0 < done.transactions < 2000
        first.send_signal(signal.SIGCONT)
        assert first.wait(60) == OwnedError.exit_code
    finally:
        first.kill()
    said = "".join(path.read_text() for path in staging.folder.glob("sync-to*.log"))
    assert "another sync-to took over" in said
    assert_all_there(committed(staging.broker, *names), staging)


@pytest.mark.parametrize("how", ["--one-by-one", "--group-rows=20"])
def test_kill_9_at_any_moment_neither_loses_nor_repeats(staging: Staging, names: list[str], how: str) -> None:
    chance = random.Random(7)
    for number in range(5):
        staging.sync(transfers(names, 4000, first=4000 * number))
        process = start("sync-to", "kafka", "staging", how, cwd=staging.folder)
        count = len(committed(staging.broker, *names))
        wait_until(lambda count=count: len(committed(staging.broker, *names)) > count)  # type: ignore[misc]
        time.sleep(chance.random() * 0.1)
        process.kill()
        process.wait()
        assert_whole(committed(staging.broker, *names), staging)
    done = staging.deliver()
    assert done.transactions > 0
    assert_all_there(committed(staging.broker, *names), staging)


def test_a_broker_that_dies_and_comes_back(tmp_path: Path, names: list[str]) -> None:
    kafka = DevKafka(tmp_path / "broker")
    staging = Staging(tmp_path, kafka.start(free_port()))
    staging.config()
    staging.sync(transfers(names, 6000))
    process = start("sync-to", "kafka", "staging", "--group-rows", "30", "--until-caught-up", cwd=tmp_path)
    try:
        wait_until(lambda: len(committed(staging.broker, *names)) > 30)
        os.kill(kafka.pid() or 0, signal.SIGKILL)
        time.sleep(3)
        kafka.start(int(staging.broker.rpartition(":")[2]))
        assert process.wait(120) == 0
        assert_all_there(committed(staging.broker, *names), staging)
    finally:
        process.kill()
        kafka.stop()


def test_while_kafka_takes_nothing_it_is_not_ready_and_behind(tmp_path: Path, names: list[str]) -> None:
    kafka, port = DevKafka(tmp_path / "broker"), free_port()
    staging = Staging(tmp_path, kafka.start(free_port()))
    staging.config("deliver: {kafka: {properties: {transaction.timeout.ms: 3000}}}\n")
    staging.sync(transfers(names, 10))
    process = start("sync-to", "kafka", "staging", "--metrics", f"localhost:{port}", cwd=tmp_path)
    try:
        wait_until(lambda: len(committed(staging.broker, *names)) == 30)
        wait_until(lambda: "zync_delivery_sync 1.0" in get(port, "/metrics")[1])
        assert get(port, "/readyz")[0] == 200
        before = connections(process.pid)
        os.kill(kafka.pid() or 0, signal.SIGKILL)
        staging.sync(transfers(names, 10, first=10))
        wait_until(lambda: get(port, "/readyz")[0] == 503, 60)
        assert "no Kafka transaction has gone through" in get(port, "/readyz")[1]
        assert "zync_delivery_lag_syncs 1.0" in get(port, "/metrics")[1]
        staging.sync(transfers(names, 10, first=20))
        wait_until(lambda: "zync_delivery_lag_syncs 2.0" in get(port, "/metrics")[1], 60)
        # Each attempt's producer has ended: one that lives on would fence its successor once brokers are back.
        assert connections(process.pid) <= before + 1
        kafka.start(int(staging.broker.rpartition(":")[2]))
        wait_until(lambda: get(port, "/readyz")[0] == 200, 60)
        wait_until(lambda: "zync_delivery_lag_syncs 0.0" in get(port, "/metrics")[1], 60)
        assert_all_there(committed(staging.broker, *names), staging)
    finally:
        process.kill()
        kafka.stop()


def test_it_follows_staging_and_ends_cleanly(staging: Staging, names: list[str]) -> None:
    port = free_port()
    process = start("sync-to", "kafka", "staging", "--metrics", f"localhost:{port}", cwd=staging.folder)
    try:
        time.sleep(1)  # there is no staging yet
        for number in range(3):
            staging.sync(transfers(names, 10, first=10 * number))
            wait_until(lambda n=number: len(committed(staging.broker, *names)) == 30 * (n + 1))  # type: ignore[misc]
        wait_until(lambda: "zync_delivery_transactions_total 30.0" in get(port, "/metrics")[1])
        assert get(port, "/readyz")[0] == 200
        said = get(port, "/metrics")[1]
        assert f'zync_delivery_rows_total{{topic="{names[0]}"}} 60.0' in said
        assert "zync_delivery_lag_syncs 0.0" in said
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
    assert_all_there(committed(staging.broker, *names), staging)


def test_ctrl_c_in_the_middle_commits_what_is_in_hand(staging: Staging, names: list[str]) -> None:
    staging.sync(transfers(names, 6000))
    process = start("sync-to", "kafka", "staging", "--one-by-one", "--json", cwd=staging.folder)
    try:
        wait_until(lambda: len(committed(staging.broker, *names)) > 30)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
    said = "".join(path.read_text() for path in staging.folder.glob("sync-to*.log"))
    assert 0 < json.loads(re.findall(r"^\{.*\}$", said, re.M)[-1])["transactions"] < 6000
    assert_whole(committed(staging.broker, *names), staging)
    staging.deliver()
    assert_all_there(committed(staging.broker, *names), staging)


def test_no_broker_is_said_in_a_line(staging: Staging, names: list[str]) -> None:
    staging.sync(transfers(names, 1))
    gone = staging.zync("--until-caught-up", "--bootstrap-servers", "localhost:1", check=False)
    assert gone.returncode == 1
    assert re.fullmatch(r"zync: no Kafka broker answers at localhost:1 .*\n", gone.stderr)


def test_no_staging_is_the_users_mistake(staging: Staging) -> None:
    none = staging.zync("--until-caught-up", check=False)
    assert none.returncode == 2
    assert "there is no table at" in none.stderr


def test_a_raw_is_no_staging_nor_waited_for_as_one(staging: Staging) -> None:
    ensure_raw(staging.path)
    raw = staging.zync(check=False)
    assert (raw.returncode, "is no staging" in raw.stderr) == (2, True)


def test_staging_may_be_compacted_meanwhile(staging: Staging, names: list[str]) -> None:
    for number in range(12):
        staging.sync(transfers(names, 10, first=10 * number))
        if number == 6:
            staging.deliver()
    before = len(list(Path(staging.path).glob("*/*.parquet")))
    zync("maintain", "staging", "--compact", cwd=staging.folder)
    assert len(list(Path(staging.path).rglob("*.parquet"))) > before
    staging.sync(transfers(names, 10, first=120))
    assert staging.deliver().transactions == 60
    assert_all_there(committed(staging.broker, *names), staging)


def test_someone_elses_open_transaction_is_waited_for(staging: Staging, names: list[str]) -> None:
    """Progress is read to the end of its topic, whatever stands there uncommitted before."""
    staging.sync(transfers(names, 1))
    staging.deliver()
    other = Producer({"bootstrap.servers": staging.broker, "transactional.id": f"other-{names[0]}"})
    other.init_transactions(20)
    other.begin_transaction()
    other.produce("__zync_progress", b"{}", f"other-{names[0]}")
    other.flush(20)
    staging.sync(transfers(names, 1, first=1))
    process = start("sync-to", "kafka", "staging", "--until-caught-up", cwd=staging.folder)
    time.sleep(3)
    assert process.poll() is None
    other.abort_transaction(20)
    assert process.wait(60) == 0
    assert_all_there(committed(staging.broker, *names), staging)
