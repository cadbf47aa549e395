"""`zync cat` shows every row of a table, a first cursor at seqno 0 among them."""

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from zync.operate.cat import cat
from zync.staging.table import STAGING_SCHEMA


def test_a_first_cursor_is_shown_where_nothing_is_settled_yet(tmp_path: Path) -> None:
    rows = [
        {"kind": "pending", "seqno": 1, "sync": 1, "txn": "7", "count": 1},
        {"kind": "cursor", "seqno": 0, "sync": 1, "head": 1},
    ]
    write_deltalake(tmp_path / "staging", pa.Table.from_pylist(rows, schema=STAGING_SCHEMA))
    staging = str(tmp_path / "staging")
    assert [(row["kind"], row["seqno"]) for row in cat(staging)] == [("cursor", 0), ("pending", 1)]
    assert [row["kind"] for row in cat(staging, kind="cursor")] == ["cursor"]
    assert [row["kind"] for row in cat(staging, since=1)] == ["pending"]
