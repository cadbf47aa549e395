"""How many rows of each transaction a delivered table has to have, by staging's output rows."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from zync.operate.verify.applied import TopicRows
from zync.operate.verify.claim import Claim

TRUNCATE = "truncate"
Row = tuple[int, str | None, str | None]
"""A row: its transaction's seqno, key and value; the key TRUNCATE stands for a truncation."""


def topic_rows(*rows: Row, positions: list[int | None] | None = None, key_type: str = "integer") -> TopicRows:
    """Rows in order of delivery; each transaction is a sync of its own, ten times its seqno."""
    key = {"type": "struct", "fields": [{"name": "id", "type": key_type}]}
    places = positions or [100 + seqno for seqno, _, _ in rows]
    columns: dict[str, Any] = {
        "offset": pa.array(range(len(rows)), pa.int64()),
        "seqno": pa.array([seqno for seqno, _, _ in rows], pa.int64()),
        "sync": pa.array([10 * seqno for seqno, _, _ in rows], pa.int64()),
        "position": pa.array(places, pa.int64()),
        "key": pa.array([None if key == TRUNCATE else key for _, key, _ in rows], pa.string()),
        "deleted": pa.array([value is None for _, _, value in rows], pa.bool_()),
        "truncation": pa.array([key == TRUNCATE for _, key, _ in rows], pa.bool_()),
    }
    return TopicRows(pa.table(columns), frozenset([json.dumps(key)]))


def violations(rows: TopicRows, apply: str, *seqnos: int) -> list[str]:
    claim = Claim("")
    assert rows.check(claim, "t", apply, np.array(seqnos, np.int64)) is None
    return claim.violations


CHANGES: list[Row] = [(1, "a", "1"), (1, "b", "1"), (2, "a", "2"), (2, "a", "3"), (3, "b", None), (4, "c", "1")]


@pytest.mark.parametrize(
    ("apply", "seqnos"), [("append", (1, 1, 2, 2, 3, 4)), ("history", (1, 1, 2, 4)), ("upsert", (2, 4))]
)
def test_each_way_to_apply_rows_has_its_number_of_rows(apply: str, seqnos: tuple[int, ...]) -> None:
    rows = topic_rows(*CHANGES)
    assert violations(rows, apply, *seqnos) == []
    missing, *_ = violations(rows, apply, *seqnos[:-1])
    assert missing == "t: rows of sync 40: 1 missing, as of the transaction at seqno 4"
    assert violations(rows, apply, *seqnos, 4) == ["t: rows of sync 40: 1 too many, as of the transaction at seqno 4"]
    (foreign,) = violations(rows, apply, *seqnos, 9)
    assert foreign == "t: rows that staging does not have: 1 too many, as of the transaction at seqno 9"


def test_the_newest_row_of_a_key_is_that_in_the_sources_order() -> None:
    late = topic_rows((1, "a", "1"), (2, "a", "0"), (3, "b", "1"), (4, "b", None), positions=[50, 40, 50, 40])
    assert violations(late, "upsert", 1, 3) == []
    assert violations(late, "history", 1, 2, 3) == []


def test_a_truncation_deletes_what_is_before_it_in_the_sources_order() -> None:
    changes: list[Row] = [(1, "a", "1"), (2, "b", "1"), (2, TRUNCATE, None), (2, "c", "1"), (3, "d", "late")]
    rows = topic_rows(*changes, positions=[10, 20, 20, 20, 15])
    assert violations(rows, "upsert", 2) == []
    assert violations(rows, "history", 1, 2, 3) == []
    assert violations(rows, "append", 1, 2, 2, 2, 3) == []


def test_where_the_order_of_a_keys_rows_is_unknown_fewer_rows_are_known() -> None:
    mixed = topic_rows(*CHANGES, positions=[5, None, 5, 5, None, 6])
    assert violations(mixed, "upsert", 2, 4) == violations(mixed, "upsert", 1, 4) == []
    assert violations(mixed, "upsert", 2) == ["t: 1 rows, and staging has 2 keys that were never deleted"]
    assert violations(mixed, "upsert", 2, 3, 4) == ["t: rows of sync 30: 1 too many, as of the transaction at seqno 3"]
    zeros = topic_rows((1, "0.0", "1"), (2, "-0.0", "2"), key_type="double")
    assert violations(zeros, "upsert", 2) == []


def test_what_cannot_be_compared_says_why() -> None:
    without_key = topic_rows((1, None, "1"))
    assert without_key.check(Claim(""), "t", "upsert", np.array([1])) == "staging has rows without a key"
    other_key = json.dumps({"type": "struct", "fields": [{"name": "other", "type": "integer"}]})
    changed = topic_rows((1, "a", "1"))
    changed = TopicRows(changed.rows, changed.keys | {other_key})
    assert changed.check(Claim(""), "t", "history", np.array([1])) == "its key changed"


@pytest.mark.parametrize("apply", ["append", "history", "upsert"])
def test_a_topic_without_rows_has_an_empty_table(apply: str) -> None:
    assert violations(topic_rows(), apply) == []
    assert len(violations(topic_rows(), apply, 1)) == 1
