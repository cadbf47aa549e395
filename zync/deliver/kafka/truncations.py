"""Truncations in Kafka: each becomes tombstones, and keeps back the rows that were before it in the source."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from zync.lake.files import data_files, dataset
from zync.staging.outputs import DELIVERY_ORDER, KAFKA_OFFSET, DeliveryPosition
from zync.staging.table import STAGING_SCHEMA


class LastTruncation(NamedTuple):
    """Of the truncations of a topic that were delivered, the last in the source's order.

    Attributes:
        position: The position of its transaction's commit in the source.
        seqno: The seqno of its transaction.
        turn: The seqno at which its transaction's turn came.
    """

    position: int
    seqno: int
    turn: int


_NONE = LastTruncation(-(2**63), -1, 0)
"""A truncation before all rows."""
_UNKNOWN = -(2**63) + 1
"""The position of a row without one."""
_Array = np.ndarray[Any, Any]


class DeliveredTruncation(NamedTuple):
    """A truncation among the rows of a delivery, and its position there."""

    at: DeliveryPosition
    topic: str
    truncation: LastTruncation


@dataclass(frozen=True)
class Outgoing:
    """Output rows as they go out to Kafka.

    Attributes:
        rows: The rows.
        truncations: The truncations that became some of them.
        kept_back: How many rows do not go out, by topic, as a truncation before them deleted them.
    """

    rows: pa.Table
    truncations: list[DeliveredTruncation]
    kept_back: Counter[str]


def outgoing(table: DeltaTable, rows: pa.Table, last: Mapping[str, LastTruncation], remember: int) -> Outgoing:
    """Returns output rows as they go out to Kafka.

    A truncation becomes a tombstone for each key that lives in its topic, and whose row is before it in the source. To
    a topic without keys it goes out as it is. A row with a key that goes out after a truncation, and is before it in
    the source, is kept back: for `remember` records, as positions may begin again in a database that is made anew.

    Args:
        table: Staging.
        rows: The rows, in the order of delivery, as `zync.staging.outputs.staged` yields them.
        last: The last truncation, by topic, before these rows.
        remember: For how many records of raw a truncation keeps rows back.
    """
    last, truncations, kept_back = dict(last), list[DeliveredTruncation](), Counter[str]()
    parts, start = list[pa.Table](), 0
    for index in np.flatnonzero(pc.is_valid(rows["reason"]).to_numpy()).tolist():
        (row,) = rows.slice(index, 1).to_pylist()
        keys = _living_keys(table, row, remember)
        parts.append(_not_kept_back(rows.slice(start, index - start), last, remember, kept_back))
        if keys is None:
            parts.append(rows.slice(index, 1))
        else:
            parts.append(pa.Table.from_pylist([{**row, "key": key} for key in keys], rows.schema))
        at = DeliveryPosition(*(row[column] for column in DELIVERY_ORDER))
        truncation = LastTruncation(row["position"], row["seqno"], row["turn"])
        truncations.append(DeliveredTruncation(at, row["topic"], truncation))
        last = last_truncations(last, truncations[-1:])
        start = index + 1
    rest = _not_kept_back(rows.slice(start), last, remember, kept_back)
    return Outgoing(pa.concat_tables([*parts, rest]) if parts else rest, truncations, kept_back)


def last_truncations(
    last: Mapping[str, LastTruncation], truncations: Iterable[DeliveredTruncation]
) -> dict[str, LastTruncation]:
    """Returns the last truncation by topic: of those in `last`, and of `truncations`."""
    newest = dict(last)
    for _, topic, truncation in truncations:
        newest[topic] = max(newest.get(topic, truncation), truncation)
    return newest


def _not_kept_back(
    rows: pa.Table, last: Mapping[str, LastTruncation], remember: int, kept_back: Counter[str]
) -> pa.Table:
    """Returns the rows that go out, and counts the others in `kept_back`."""
    topics = last.keys() & set(rows["topic"].unique().to_pylist() if last else ())
    if not topics:
        return rows
    places, keep = _Places.of(rows), np.ones(rows.num_rows, np.bool_)
    for topic in topics:
        is_of_topic = pc.and_(pc.equal(rows["topic"], topic), pc.is_valid(rows["key"])).to_numpy()
        is_kept_back = is_of_topic & places.are_kept_back(np.array([last[topic]]), remember)
        kept_back[topic] += int(is_kept_back.sum())
        keep &= ~is_kept_back
    return rows if keep.all() else rows.filter(pa.array(keep))


@dataclass(frozen=True)
class _Places:
    """The places of rows in the source's order.

    Truncations are given as an array with the columns of `LastTruncation`: one for each row, or a single one for all.
    """

    position: _Array
    seqno: _Array
    turn: _Array

    @staticmethod
    def of(rows: pa.Table) -> "_Places":
        """Returns the places of rows of staging; a row without position is before all others."""
        position = pc.fill_null(rows["position"], _UNKNOWN).to_numpy()
        return _Places(position, rows["seqno"].to_numpy(), rows["turn"].to_numpy())

    def take(self, rows: _Array) -> "_Places":
        """Returns the places of these rows only."""
        return _Places(self.position[rows], self.seqno[rows], self.turn[rows])

    def are_kept_back(self, truncations: _Array, remember: int) -> _Array:
        """Returns which rows an earlier truncation keeps back: none without position."""
        position, seqno, turn = truncations.T
        is_before = (self.position < position) | (self.position == position) & (self.seqno < seqno)
        return (self.position != _UNKNOWN) & is_before & (self.turn - turn <= remember)  # type: ignore[no-any-return]

    def are_deleted(self, truncations: _Array) -> _Array:
        """Returns which rows a later truncation deletes: those before it, and those of its own transaction."""
        position, seqno, _ = truncations.T
        return (self.position < position) | (self.position == position) & (self.seqno <= seqno)  # type: ignore[no-any-return]


def _living_keys(table: DeltaTable, truncation: dict[str, Any], remember: int) -> list[str] | None:
    """Reads the keys that a truncation deletes from its topic; returns None if its rows have no keys.

    A key is deleted if its last row in the source's order is before the truncation, of those that went out, and if a
    reader may have a row of it: one who takes messages as they come, or by their positions.
    """
    files = data_files(table, "sync", upto=truncation["sync"])
    row_filter = (ds.field("kind") == "output") & (ds.field("kafka", "topic") == truncation["topic"])
    row_filter &= truncation["offset"] > KAFKA_OFFSET
    columns = {name: ds.field(name) for name in ("key", "position", "seqno", "reason")}
    columns |= {"turn": DELIVERY_ORDER["turn"], "offset": KAFKA_OFFSET, "deleted": ds.field("value").is_null()}
    rows = dataset(table, files, STAGING_SCHEMA).to_table(columns=columns, filter=row_filter).sort_by("offset")
    is_truncation = pc.is_valid(rows["reason"])
    earlier, rows = rows.filter(is_truncation), rows.filter(pc.invert(is_truncation))
    if rows.num_rows and rows["key"].null_count == rows.num_rows:
        return None
    rows = rows.filter(pc.is_valid(rows["key"]))
    truncations = [LastTruncation(**place) for place in earlier.select(LastTruncation._fields).to_pylist()]
    count_before = np.searchsorted(earlier["offset"].to_numpy(), rows["offset"].to_numpy())
    places = _Places.of(rows)
    went_out = ~places.are_kept_back(_last_of_each([_NONE, *truncations])[count_before], remember)
    keys = rows["key"].combine_chunks().dictionary_encode()
    last_sent = _last_by_key(keys, np.flatnonzero(went_out))
    in_order = np.lexsort((rows["offset"].to_numpy(), places.position))
    last_in_source = _last_by_key(keys, in_order[went_out[in_order]])
    places, is_deleted = places.take(last_in_source), rows["deleted"].to_numpy()
    later = _last_of_each([_NONE, *reversed(truncations)])[len(truncations) - count_before[last_sent]]
    lives = ~(is_deleted[last_sent] & is_deleted[last_in_source]) & ~places.are_deleted(later)
    lives &= places.are_deleted(np.array([[truncation[column] for column in LastTruncation._fields]]))
    return rows["key"].take(np.sort(last_sent[lives])).to_pylist()  # type: ignore[no-any-return]


def _last_by_key(keys: pa.DictionaryArray, rows: _Array) -> _Array:
    """Returns for each key that is among `rows`, in order of keys, the last of these rows.

    Args:
        keys: The key of each row.
        rows: Indices of rows.
    """
    last = np.full(len(keys.dictionary), -1)
    last[keys.indices.to_numpy()[rows]] = rows  # of several rows of a key the last is kept
    return last[last >= 0]


def _last_of_each(truncations: Sequence[LastTruncation]) -> _Array:
    """Returns for each truncation the last in the source's order among it and those before it in the sequence."""
    return np.array(list(accumulate(truncations, max)))
