"""What staging holds beyond a place: output rows of whole transactions, in their order, without Spark."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from zync.lake.files import DataFile, data_files, dataset
from zync.staging.table import STAGING_SCHEMA

MOST_ROWS = 250_000
MOST_BYTES = 64 << 20
_LAST = 2**63 - 1
_PLACE = {
    "sync": ds.field("sync"),
    "turn": pc.coalesce(ds.field("head"), ds.field("seqno")),
    "seqno": ds.field("seqno"),
}
TRUNCATED = "truncate"
"""The reason of an output row, without key and value, by which all rows of its topic that are before it are gone."""
_SETTLED = ("done", "released")
"""What tells an output row's transaction."""


@dataclass(frozen=True, order=True)
class Place:
    """How far a delivery is: through the transaction `seqno` of the sync `sync`, whose turn came at `turn`.

    Without order: commit its turn comes at its seqno.
    """

    sync: int = 0
    turn: int = 0
    seqno: int = 0


def staged(table: DeltaTable, after: Place) -> Iterator[pa.Table]:
    """The output rows after that place, as tables of whole transactions, each of no more than fits in memory.

    In the order in which staging numbered them, by topic: sync, turn, seqno, offset. Columns: those, and topic, key,
    value, position, reason (of a truncation), state and txn (null where a record is a transaction by itself).
    """
    for paths, upto in _spans(data_files(table, "sync", above=after.sync - 1)):
        rows, end = dataset(table, paths, STAGING_SCHEMA), Place(upto, _LAST, _LAST)
        outputs = _between(after, end) & (ds.field("kind") == "output")
        for last in _cuts(rows.to_table(columns=_PLACE, filter=outputs), _at_once(rows)):
            yield _rows(rows, after, last)
            after = last
        after = max(after, end)


@dataclass(frozen=True, order=True)
class Truncation:
    """Where all rows of an output topic that are before it are gone, in the source's order.

    offset: of its row in staging, which tells what is before it in its own transaction. turn: when it went out.
    """

    position: int
    seqno: int
    offset: int
    turn: int


@dataclass(frozen=True)
class Arrivals:
    """What is known of a topic's output rows without looking at each.

    first: a place (position, seqno) in the source's order that none of them is before.
    unplaced: some have no position. left_out: columns that are left out of any of them. moved: some had another key
    before.
    """

    first: tuple[int, int]
    unplaced: bool
    truncations: list[Truncation]
    left_out: frozenset[str]
    moved: bool


def arrivals(table: DeltaTable, files: list[DataFile], topic: str, after: int, upto: int) -> Arrivals:
    """Of the output rows of that topic in those files: those of the syncs after the one and up to the other."""
    mine = (ds.field("kind") == "output") & (ds.field("kafka", "topic") == topic)
    if any(one.lowest <= after or one.highest > upto for one in files):
        mine &= (ds.field("sync") > after) & (ds.field("sync") <= upto)
    rows = dataset(table, [one.path for one in files], STAGING_SCHEMA)
    found = rows.to_table(columns=["position", "seqno", "reason", "state"], filter=mine)
    position, seqno = (pc.min(pc.fill_null(found[name], 0)).as_py() or 0 for name in ("position", "seqno"))
    truncations: list[Truncation] = []
    if found["reason"].null_count < found.num_rows:
        columns = {"position": ds.field("position"), "seqno": ds.field("seqno"), "offset": ds.field("kafka", "offset")}
        truncating = rows.to_table({**columns, "turn": _PLACE["turn"]}, filter=mine & (ds.field("reason") == TRUNCATED))
        truncations = sorted(Truncation(**one) for one in truncating.to_pylist())
    states = [left_out(state) for state in found["state"].unique().to_pylist() if state]
    names = frozenset(name for columns, _ in states for name in columns)
    moved = any(old_key for _, old_key in states)
    return Arrivals((position, seqno), found["position"].null_count > 0, truncations, names, moved)


def left_out(state: str) -> tuple[list[str], str | None]:
    """Of an output row with that `state`: the columns that the connector left out, and another key that it had."""
    said = json.loads(state)
    return said["left_out"], said.get("old_key")


def with_tombstones(table: DeltaTable, rows: pa.Table) -> pa.Table:
    """The rows (from `staged`) with a tombstone for each key that a truncation took, in place of its own row.

    Those are the keys that staging has a row of before it. Where rows of the topic have no key, its own stays.
    """
    if rows["reason"].null_count == rows.num_rows:
        return rows
    parts, begun = list[pa.Table](), 0
    for index in np.flatnonzero(pc.is_valid(rows["reason"]).to_numpy()).tolist():
        (row,) = rows.slice(index, 1).to_pylist()
        keys = _living_keys(table, row)
        parts.append(rows.slice(begun, index - begun + (keys is None)))
        parts.append(pa.Table.from_pylist([{**row, "key": key} for key in keys or ()], rows.schema))
        begun = index + 1
    return pa.concat_tables([*parts, rows.slice(begun)])


def _living_keys(table: DeltaTable, truncation: dict[str, Any]) -> list[str] | None:
    """The keys of a topic's output rows before that one which were not deleted since; None where rows have no keys."""
    offset = ds.field("kafka", "offset")
    paths = [one.path for one in data_files(table, "sync", upto=truncation["sync"])]
    mine = (ds.field("kind") == "output") & (ds.field("kafka", "topic") == truncation["topic"])
    mine &= offset < truncation["offset"]
    columns = {"key": ds.field("key"), "offset": offset, "deleted": ds.field("value").is_null()}
    before = dataset(table, paths, STAGING_SCHEMA).to_table({**columns, "reason": ds.field("reason")}, filter=mine)
    last = pc.max(before.filter(pc.is_valid(before["reason"]))["offset"]).as_py()
    before = before.filter(pc.is_null(before["reason"]))
    if before.num_rows and before["key"].null_count == before.num_rows:
        return None
    before = before.filter(pc.greater(before["offset"], -1 if last is None else last)).sort_by("offset")
    newest = before.group_by("key", use_threads=False).aggregate([("offset", "last"), ("deleted", "last")])
    living = newest.filter(pc.invert(newest["deleted_last"])).sort_by("offset_last")
    return [key for key in living["key"].to_pylist() if key is not None]


def columns_of(table: DeltaTable, first: int, last: int) -> dict[int, dict[str, Any]]:
    """What those syncs have on record of their outputs' columns (`recorded`)."""
    paths = [one.path for one in data_files(table, "sync", above=first - 1, upto=last)]
    cursors = (ds.field("kind") == "cursor") & (ds.field("sync") >= first) & (ds.field("sync") <= last)
    found = dataset(table, paths, STAGING_SCHEMA).to_table(columns=["sync", "state"], filter=cursors)
    return {one["sync"]: recorded(one["state"]) for one in found.to_pylist()}


def _between(after: Place, last: Place) -> ds.Expression:
    """What is after the one and not after the other."""
    sync, turn, seqno = _PLACE.values()
    beyond = (turn > after.turn) | ((turn == after.turn) & (seqno > after.seqno))
    within = (turn < last.turn) | ((turn == last.turn) & (seqno <= last.seqno))
    return ((sync > after.sync) | ((sync == after.sync) & beyond)) & (
        (sync < last.sync) | ((sync == last.sync) & within)
    )


def _spans(files: list[DataFile]) -> Iterator[tuple[list[str], int]]:
    """Files in order of sync, so many at a time as hold some rows, and the last sync that is in no later file."""
    paths: list[str] = []
    count, highest = 0, 0
    for number, file in enumerate(files):
        paths.append(file.path)
        count, highest = count + file.rows, max(highest, file.highest)
        following = files[number + 1].lowest if number + 1 < len(files) else None
        if following is None or (count >= MOST_ROWS and following > highest):
            yield paths, highest
            paths, count = [], 0


def _at_once(rows: ds.FileSystemDataset) -> int:
    """How many rows may be in memory together, by what the files say of their size."""
    count = size = 0
    for fragment in rows.get_fragments():
        metadata = fragment.metadata
        count += metadata.num_rows
        for group in range(metadata.num_row_groups):
            size += metadata.row_group(group).total_byte_size
    return max(1, min(MOST_ROWS, MOST_BYTES * count // max(1, size)))


def _cuts(places: pa.Table, at_once: int) -> Iterator[Place]:
    """The last place of each run of about so many rows; a transaction is never cut."""
    counted = places.group_by(list(_PLACE)).aggregate([([], "count_all")])
    counted = counted.sort_by([(name, "ascending") for name in _PLACE])
    upto = np.cumsum(counted["count_all"].to_numpy())  # rows up to each place, and with it
    begun = cut = 0
    while cut < len(upto):
        last = min(int(np.searchsorted(upto, begun + at_once)), len(upto) - 1)
        yield Place(*(counted[name][last].as_py() for name in _PLACE))
        begun, cut = int(upto[last]), last + 1


def _rows(rows: ds.FileSystemDataset, after: Place, last: Place) -> pa.Table:
    columns = _PLACE | {name: ds.field(name) for name in ("key", "value", "position", "reason", "state")}
    columns |= {name: ds.field("kafka", name) for name in ("topic", "offset")}
    made = rows.to_table(columns=columns, filter=_between(after, last) & (ds.field("kind") == "output"))
    syncs = (ds.field("sync") >= after.sync) & (ds.field("sync") <= last.sync)
    settled = rows.to_table(columns=["seqno", "txn"], filter=syncs & ds.field("kind").isin(list(_SETTLED)))
    made = made.append_column("txn", settled["txn"].take(pc.index_in(made["seqno"], settled["seqno"])))
    order = np.lexsort([made[name].to_numpy() for name in ("offset", *reversed(_PLACE))])
    return made if (order[1:] > order[:-1]).all() else made.take(order)


@lru_cache(16)
def recorded(state: str | None) -> dict[str, dict[str, Any]]:
    """By topic the type of its `key` and `value`, as Spark and Delta write types in JSON: `{"type": "struct", …`."""
    return json.loads(state or "{}").get("columns", {})  # type: ignore[no-any-return]
