"""sync-to kafka: what is whole in staging is whole in Kafka, once, in order."""

import json
from pathlib import Path

import pytest

from tests.conftest import TopicMaker, zync
from tests.deliver.conftest import Seen, Staging, assert_all_there, committed, row
from tests.deliver.kafka.conftest import transfers
from zync.operate.status import status
from zync.project.load import load


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
