"""The rows that a delivered table has to have by staging's output rows, counted by transaction."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from zync.lake.files import data_files, dataset
from zync.operate.verify.claim import Claim
from zync.staging.outputs import recorded
from zync.staging.table import STAGING_SCHEMA

_INEXACT_TYPES = ("float", "double")
"""Types of key columns whose equal values (0.0 and -0.0) may differ as text."""


def read_topics(staging: DeltaTable, topics: list[str], sync: int) -> dict[str, "TopicRows"]:
    """Reads the output rows of topics, of all syncs through `sync`, without their values."""
    columns = {name: ds.field("kafka", name) for name in ("topic", "offset")}
    columns |= {name: ds.field(name) for name in ("seqno", "sync", "position", "key")}
    columns |= {"deleted": ds.field("value").is_null(), "truncation": ds.field("reason").is_valid()}
    is_wanted = (ds.field("kind") == "output") & (ds.field("sync") <= sync) & ds.field("kafka", "topic").isin(topics)
    files = data_files(staging, "sync", upto=sync)
    data = dataset(staging, files, STAGING_SCHEMA)
    rows = data.to_table(columns=columns, filter=is_wanted)
    is_cursor = (ds.field("kind") == "cursor") & (ds.field("sync") <= sync)
    states = set[str | None]()
    for batch in data.to_batches(columns=["state"], filter=is_cursor):  # most syncs have the same
        states.update(batch.column("state").unique().to_pylist())
    outputs = [recorded(state) for state in states]
    keys = {
        topic: frozenset(json.dumps(made[topic].get("key")) for made in outputs if topic in made) for topic in topics
    }
    return {topic: TopicRows(rows.filter(pc.equal(rows["topic"], topic)), keys[topic] - {"null"}) for topic in topics}


@dataclass(frozen=True)
class TopicRows:
    """The output rows of a topic.

    Attributes:
        rows: Columns offset, seqno, sync, position, key, deleted and truncation.
        keys: The columns of the topic's key, as JSON, as the syncs recorded them; several if they changed.
    """

    rows: pa.Table
    keys: frozenset[str]

    def last_sync(self, seqnos: Any) -> int:
        """Returns the last sync that has rows of the transactions `seqnos`; 0 if there is none."""
        is_in = np.isin(self.rows["seqno"].to_numpy(), seqnos)
        return int(self.rows["sync"].to_numpy()[is_in].max(initial=0))

    def check(self, claim: Claim, topic: str, apply: str, seqnos: Any) -> str | None:
        """Compares the number of a table's rows of each transaction with what staging gives it.

        Exact for append and history. For upsert exact if the order of a key's rows is known: if all rows have a
        position, or none has. (A delivery gives a row without position one of its own.) If not, a transaction has at
        most so many rows as history has, and each key that was never deleted has a row.

        Args:
            claim: Gets a violation for each sync with other rows.
            topic: The topic, for the violations.
            apply: How rows are applied to the table.
            seqnos: The column `_seqno` of the table.

        Returns:
            Why the rows could not be compared; None if they were.
        """
        rows = self.rows
        has_floats = any(f'"{name}"' in key for key in self.keys for name in _INEXACT_TYPES)
        if apply == "append":
            expected, is_exact = rows["seqno"].to_numpy(), True
        elif pc.any(pc.and_(pc.is_null(rows["key"]), pc.invert(rows["truncation"]))).as_py():
            return "staging has rows without a key"
        elif len({tuple(field["name"] for field in json.loads(key)["fields"]) for key in self.keys}) > 1:
            return "its key changed"
        elif apply == "upsert" and not has_floats and rows["position"].null_count in (0, len(rows)):
            expected, is_exact = _newest(rows), True
        else:
            expected, is_exact = _versions(rows), apply == "history" and not has_floats
        claim.count += len(seqnos)
        self._compare(claim, topic, seqnos, expected, is_exact=is_exact)
        if not is_exact and not has_floats and not pc.any(rows["truncation"]).as_py():
            deleted = rows.filter(rows["deleted"])["key"]
            living = pc.count_distinct(rows.filter(pc.invert(pc.is_in(rows["key"], deleted.combine_chunks())))["key"])
            if len(seqnos) < living.as_py():
                claim.add_violation(
                    f"{topic}: {len(seqnos):,} rows, and staging has {living.as_py():,} keys that were never deleted"
                )
        return None

    def _compare(self, claim: Claim, topic: str, actual: Any, expected: Any, *, is_exact: bool) -> None:
        """Adds a violation for each sync of which the table has other rows.

        Args:
            claim: Gets the violations.
            topic: The topic.
            actual: The seqnos of the table's rows.
            expected: The seqnos of the rows that it should have.
            is_exact: Whether it has to have all of them.
        """
        seqnos = np.union1d(actual, expected)
        surplus = _counts(actual, seqnos) - _counts(expected, seqnos)
        is_different = surplus != 0 if is_exact else surplus > 0
        seqnos, surplus = seqnos[is_different], surplus[is_different]
        staged, first = np.unique(self.rows["seqno"].to_numpy(), return_index=True)
        index = np.minimum(np.searchsorted(staged, seqnos), max(len(staged) - 1, 0))
        is_staged = staged[index] == seqnos if len(staged) else np.zeros(len(seqnos), bool)
        syncs = np.zeros(len(seqnos), np.int64)  # 0: of no transaction of staging
        syncs[is_staged] = self.rows["sync"].to_numpy()[first[index[is_staged]]]
        for sync in np.unique(syncs):
            in_sync = syncs == sync
            missing, too_many = -surplus[in_sync].clip(max=0).sum(), surplus[in_sync].clip(min=0).sum()
            parts = [f"{missing:,} missing"] * bool(missing) + [f"{too_many:,} too many"] * bool(too_many)
            source = f"rows of sync {sync:,}" if sync else "rows that staging does not have"
            example = f"as of the transaction at seqno {seqnos[in_sync][0]:,}"
            claim.add_violation(f"{topic}: {source}: {' and '.join(parts)}, {example}")


def _counts(values: Any, of: Any) -> Any:
    """Counts how often each of the sorted values `of` is among `values`."""
    counts = np.zeros(len(of), np.int64)
    unique, unique_counts = np.unique(values, return_counts=True)
    counts[np.searchsorted(of, unique)] = unique_counts
    return counts


def _newest(rows: pa.Table) -> Any:
    """Returns the seqnos of each key's newest row in the source's order, if that is no deletion."""
    place = rows.set_column(rows.column_names.index("position"), "position", pc.fill_null(rows["position"], 0))
    ordered = place.sort_by([(column, "ascending") for column in ("position", "seqno", "offset")])
    truncations = np.flatnonzero(ordered["truncation"].to_numpy())
    return _living(ordered.slice(truncations[-1] + 1 if len(truncations) else 0), ["key"])


def _versions(rows: pa.Table) -> Any:
    """Returns the seqno of each version of a key: a transaction's last row of it, if that is no deletion."""
    truncations = rows.filter(rows["truncation"]).group_by("seqno").aggregate([("offset", "max")])
    last = truncations["offset_max"].take(pc.index_in(rows["seqno"], truncations["seqno"].combine_chunks()))
    rows = rows.filter(pc.greater(rows["offset"], pc.fill_null(last, -1)))
    return _living(rows.sort_by("offset"), ["key", "seqno"])


def _living(ordered: pa.Table, group: list[str]) -> Any:
    """Returns the seqno of the last row of each group, if that is no deletion."""
    ends = ordered.append_column("last", ordered["seqno"]).group_by(group, use_threads=False)
    last = ends.aggregate([("last", "last"), ("deleted", "last")])
    return last.filter(pc.invert(last["deleted_last"]))["last_last"].to_numpy()
