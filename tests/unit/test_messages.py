"""Rows of staging become messages with headers, in runs of whole transactions, with BEGIN and END around each."""

import json

import pyarrow as pa
import pytest

from zync.config.model import Config
from zync.deliver.kafka import events
from zync.deliver.kafka.encoder import Encoder
from zync.deliver.kafka.messages import Transaction, messages, runs, transactions
from zync.deliver.kafka.progress import Progress
from zync.deliver.kafka.truncations import LastTruncation

FIVE = (1, 1, 2, 5, 5)


def rows(*seqnos: int) -> pa.Table:
    """Output rows of transactions with these seqnos, a row each, which are `t<seqno>` at position 100 times that."""
    return pa.table(
        {
            "sync": pa.array([1] * len(seqnos), pa.int64()),
            "seqno": pa.array(seqnos, pa.int64()),
            "txn": pa.array([f"t{seqno}" for seqno in seqnos], pa.string()),
            "position": pa.array([100 * seqno for seqno in seqnos], pa.int64()),
            "topic": pa.array(["order" if n % 2 else "line" for n in range(len(seqnos))], pa.string()),
            "offset": pa.array(range(len(seqnos)), pa.int64()),
            "key": pa.array([None if n == 1 else f"k{n}" for n in range(len(seqnos))], pa.string()),
            "value": pa.array([None if n == 2 else f"v{n}" for n in range(len(seqnos))], pa.string()),
            "state": pa.nulls(len(seqnos), pa.string()),
        }
    )


def test_transactions_are_in_order_with_their_rows_counted() -> None:
    assert [*transactions(rows(*FIVE))] == [
        Transaction(1, "t1", 100, 2),
        Transaction(2, "t2", 200, 1),
        Transaction(5, "t5", 500, 2),
    ]


@pytest.mark.parametrize(
    ("most", "expected"),
    [(1, [[1, 1], [2], [5, 5]]), (2, [[1, 1], [2, 5, 5]]), (3, [[1, 1, 2], [5, 5]]), (100, [[1, 1, 2, 5, 5]])],
)
def test_a_run_ends_with_the_transaction_that_reaches_its_size(most: int, expected: list[list[int]]) -> None:
    assert [run["seqno"].to_pylist() for run in runs(rows(*FIVE), most)] == expected


def test_headers_say_what_is_known_of_a_transaction() -> None:
    assert Transaction(7, "571", 53195829, 1).headers == [
        ("zync.seqno", b"7"),
        ("zync.txn", b"571"),
        ("zync.position", b"53195829"),
    ]
    assert Transaction(7, None, None, 1).headers == [("zync.seqno", b"7")]
    assert Transaction(7, "", 0, 1).headers == [("zync.seqno", b"7"), ("zync.txn", b""), ("zync.position", b"0")]


def test_an_id_is_its_own_by_the_seqno() -> None:
    assert Transaction(7, "571", None, 1).id == "571:7"
    assert Transaction(7, None, None, 1).id == "7"


def test_rows_become_messages_to_the_topics_that_their_outputs_have_in_kafka() -> None:
    table = rows(*FIVE)
    encoder = Encoder(Config(), None)  # of JSON, which needs no table to look columns up in
    made = [*messages(table, {"order": "shop.order", "line": "line"}, [*transactions(table)], encoder)]
    assert [message[:3] for message in made] == [
        ("line", "k0", "v0"),
        ("shop.order", None, "v1"),
        ("line", "k2", None),
        ("shop.order", "k3", "v3"),
        ("line", "k4", "v4"),
    ]
    assert [dict(headers)["zync.seqno"] for *_, headers in made] == [b"1", b"1", b"2", b"5", b"5"]


def test_a_row_says_what_the_connector_left_out_of_it() -> None:
    table = rows(1, 1, 1)
    states = pa.array(['{"left_out": ["note", "größe"], "old_key": "{\\"id\\":1}"}', '{"left_out": ["note"]}', None])
    table = table.set_column(table.schema.get_field_index("state"), "state", states)
    made = [*messages(table, {"order": "order", "line": "line"}, [*transactions(table)], Encoder(Config(), None))]
    moved, stayed, whole = (dict(headers) for _, _, _, headers in made)
    assert (json.loads(moved["zync.left_out"]), moved["zync.old_key"]) == (["note", "größe"], b'{"id":1}')
    assert (json.loads(stayed["zync.left_out"]), stayed.get("zync.old_key")) == (["note"], None)
    assert not whole.keys() & {"zync.left_out", "zync.old_key"}


def test_begin_and_end_are_around_the_rows_of_each_and_count_them_by_topic() -> None:
    table = rows(*FIVE)
    every = [*transactions(table)]
    sent = messages(table, {"order": "order", "line": "line"}, every, Encoder(Config(), None))
    found = [*events.with_events(sent, every, "shop.transaction")]
    assert [topic for topic, *_ in found] == [
        *("shop.transaction", "line", "order", "shop.transaction"),
        *("shop.transaction", "line", "shop.transaction"),
        *("shop.transaction", "order", "line", "shop.transaction"),
    ]
    _, key, value, headers = found[3]
    assert json.loads(str(key)) == {"id": "t1:1"}
    end = json.loads(str(value))
    assert end.pop("ts_ms") > 0
    assert end == {
        "status": "END", "id": "t1:1", "event_count": 2,
        "data_collections": [{"data_collection": "line", "event_count": 1},
                             {"data_collection": "order", "event_count": 1}],
    }  # fmt: skip
    assert dict(headers)["zync.seqno"] == b"1"
    begin = json.loads(str(found[0][2]))
    assert (begin["status"], begin["event_count"], begin["data_collections"]) == ("BEGIN", None, None)


def test_progress_is_what_its_record_says() -> None:
    progress = Progress(
        "5a6e", sync=3, seqno=70, turn=75, offsets={"order": 12}, truncated={"order": LastTruncation(23, 7, 8)}
    )
    assert Progress.parse(progress.as_json()) == progress


def test_progress_of_a_delivery_without_truncations_is_as_older_versions_have_it() -> None:
    progress = Progress("5a6e", sync=3, seqno=70, turn=75, offsets={"order": 12})
    assert progress.as_json() == b'{"staging":"5a6e","sync":3,"seqno":70,"turn":75,"offsets":{"order":12}}'
    assert Progress.parse(progress.as_json()) == progress
    assert progress.delivery_position.seqno == 70
