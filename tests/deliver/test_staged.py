"""What deliveries read of staging: whole transactions, in order, from any place on, however the files lie."""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.deliver.conftest import Staging, row
from zync.lake.table import open_table
from zync.staging import outputs as engine
from zync.staging.outputs import DeliveryPosition, staged


@pytest.mark.parametrize("seed", range(5))
def test_all_of_it_in_order_from_any_place_on(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    staging = Staging(tmp_path, "")
    number = 0
    for _ in range(8):
        transactions = []
        for _ in range(chance.choice((0, 1, 5, 40))):
            size = chance.choice((0, 1, 3, 30))
            transactions.append([row(chance.choice("abc"), number + n) for n in range(size)])
            number += size
        staging.sync(transactions, shuffled=chance, pieces=chance.choice((1, 3)))
    table = open_table(staging.path)
    assert table is not None
    monkeypatch.setattr(engine, "MOST_ROWS", chance.choice((1, 10, 100)))
    everything: list[dict[str, Any]] = []
    for rows in staged(table, DeliveryPosition()):
        found = rows.to_pylist()
        assert not {one["seqno"] for one in found} & {one["seqno"] for one in everything}  # none is cut
        everything += found
    assert [one["seqno"] for one in everything] == sorted(one["seqno"] for one in everything)
    assert all(one["txn"] == f"t{one['seqno']}" for one in everything)
    for topic in "abc":
        mine = [one for one in everything if one["topic"] == topic]
        assert [one["offset"] for one in mine] == list(range(len(mine)))
    by_seqno = sorted((seqno, *one) for seqno, one in staging.committed)
    assert sorted((one["seqno"], one["topic"], one["key"], one["value"]) for one in everything) == by_seqno
    for one in chance.sample(everything, min(5, len(everything))):
        after = [
            other
            for rows in staged(table, DeliveryPosition(one["sync"], one["turn"], one["seqno"]))
            for other in rows.to_pylist()
        ]
        assert after == [other for other in everything if other["seqno"] > one["seqno"]]


def test_large_values_come_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staging = Staging(tmp_path, "")
    noise = random.Random(1)
    staging.sync([[row("t", n, text=noise.randbytes(5000).hex())] for n in range(100)])
    table = open_table(staging.path)
    assert table is not None
    monkeypatch.setattr(engine, "MOST_BYTES", 100_000)
    sizes = [rows.num_rows for rows in staged(table, DeliveryPosition())]
    assert sum(sizes) == 100
    assert max(sizes) <= 20
