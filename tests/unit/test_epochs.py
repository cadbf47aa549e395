"""The leader epochs that raw keeps with its positions, and what is read from librdkafka's errors about them."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from zync.kafka.epochs import epoch_end, is_truncation
from zync.kafka.partition import LastRecord, Partition
from zync.raw.append import Appender
from zync.raw.batch import Batch, Slice
from zync.raw.jsonl import load
from zync.raw.table import ensure_raw, positions, stored_last, stored_position

A = Partition("a", 0)
Stored = LastRecord | None


def stored(raw: str) -> Stored:
    table = ensure_raw(raw)
    return stored_last(table, A, stored_position(table, A))


def moved(raw: str, to: int, last: Stored) -> dict[str, int]:
    """Moves the position there; what the commit stores of the last record, by its name below the position's."""
    table = ensure_raw(raw)
    begin = stored_position(table, A)
    batch = Batch(slices={A: Slice(begin, to, last=last, begin_last=stored_last(table, A, begin))})
    before = table.version()
    assert Appender(raw).append(batch).committed == {A: to}
    table.update_incremental()
    entry = Path(raw, "_delta_log", f"{before + 1:020}.json").read_text()
    names = [name for name in ("epoch", "epoch/behind") if f'"zync/a/0/{name}"' in entry]
    return {name: table.transaction_version(f"zync/a/0/{name}") or 0 for name in names}


def test_raw_keeps_the_last_record_below_a_position_and_stores_only_what_changed(tmp_path: Path) -> None:
    raw = str(tmp_path / "raw")
    assert stored(raw) is None
    assert moved(raw, 10, LastRecord(9, 3)) == {"epoch": 3, "epoch/behind": 0}
    assert stored(raw) == LastRecord(9, 3)
    assert moved(raw, 20, LastRecord(19, 3)) == {}
    assert stored(raw) == LastRecord(19, 3)
    assert moved(raw, 21, LastRecord(19, 3)) == {"epoch/behind": 1}  # a marker
    assert stored(raw) == LastRecord(19, 3)
    assert moved(raw, 30, LastRecord(28, 5)) == {"epoch": 5}
    assert stored(raw) == LastRecord(28, 5)
    assert positions(ensure_raw(raw)).next == {A: 30}


def test_a_position_that_was_set_by_hand_has_no_last_record(tmp_path: Path) -> None:
    raw = str(tmp_path / "raw")
    moved(raw, 12, LastRecord(9, 3))
    assert moved(raw, 40, None) == {"epoch": -1}
    assert stored(raw) is None
    assert moved(raw, 41, LastRecord(40, 3)) == {"epoch": 3, "epoch/behind": 0}
    assert stored(raw) == LastRecord(40, 3)
    (tmp_path / "one.jsonl").write_text('{"topic": "a", "value": "x"}\n')
    load(raw, [str(tmp_path / "one.jsonl")])
    assert (stored(raw), positions(ensure_raw(raw)).next) == (None, {A: 42})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Partition log truncation detected at offset 10 (leader epoch 3): broker end offset is 5 (offset leader "
            "epoch 3). Reset to INVALID.: Local: Partition log truncation detected (broker 1)",
            (True, 5),
        ),
        (
            "No epoch found less or equal to offset 10 (leader epoch 3): broker end offset is -1 (offset leader epoch "
            "-1). Reset using configured policy.: Local: Partition log truncation detected (broker 1)",
            (True, None),
        ),
        (
            "fetch failed due to requested offset not available on the broker: Broker: Offset out of range (broker 1)",
            (False, None),
        ),
    ],
)
def test_an_error_of_librdkafka_says_where_the_log_was_cut(text: str, expected: tuple[bool, int | None]) -> None:
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET, text)  # noqa: SLF001
    assert (is_truncation(error), epoch_end(error)) == expected
