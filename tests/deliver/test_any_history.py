"""For any rows of any transactions, delivered in any parts, tables are what a model makes of the source's order."""

import itertools
import json
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.deliver.conftest import TRUNCATED, Row, Staging
from zync.deliver.tables import delivery, snapshots
from zync.project.load import load

EXAMPLES = int(os.environ.get("ZYNC_TEST_HISTORIES", "3"))
CONFIG = """\
topics: {{records: {{id: "value:txn", as: arriving}}}}
outputs:
  - {{topic: newest, sql: rule.sql, key: [id, kind]}}
  - {{topic: versions, sql: rule.sql, key: [id, kind]}}
  - {{topic: every, sql: rule.sql, key: [id, kind]}}
deliver: {{tables: {{versions: {{apply: history}}, every: {{apply: append}}}}}}
{preset}"""
PRESET = "transactions: {preset: debezium, topic: records.transaction}\n"
RULE = (
    "SELECT seqno, value:id::int AS id, value:kind::string AS kind, value:amount::decimal(10, 2) AS amount, "
    "value:note::string AS note, upper(value:note::string) AS loud FROM arriving"
)
LEFT_OUT = "__debezium_unavailable_value"
UNKNOWN = "what it was before, which is yet to come"
Key = tuple[int, str | None]
Change = tuple[Key | None, Decimal | None, str | None]
"""Key (None: a truncation, of all keys), amount (None: deleted), note."""

KEYS = st.tuples(st.integers(-1, 0), st.sampled_from(["é", None]))
AMOUNTS = st.decimals(-100, 100, places=2)
NOTES = st.sampled_from(["a", "b", None, LEFT_OUT, LEFT_OUT])
UPSERT = st.tuples(KEYS, AMOUNTS, NOTES).map(lambda one: [one])
DELETE = st.tuples(KEYS, st.none(), st.none()).map(lambda one: [one])
RENAME = st.tuples(KEYS, KEYS, AMOUNTS, NOTES).map(lambda one: [(one[0], None, None), one[1:]])
TRUNCATE = st.just([(None, None, None)])
TRANSACTION = st.lists(st.one_of(UPSERT, UPSERT, UPSERT, DELETE, RENAME, TRUNCATE), min_size=1, max_size=4).map(
    lambda parts: [change for part in parts for change in part]
)
SYNCS = st.lists(st.lists(TRANSACTION, min_size=1, max_size=5), min_size=2, max_size=4)
WAYS = st.sampled_from(["later", "whole", "whole", "cut", "twice"])


class Placed(NamedTuple):
    """A change, and where its transaction is in the source's order (None: the source does not say) and of arrival."""

    key: Key | None
    amount: Decimal | None
    note: str | None
    position: int | None
    seqno: int


@dataclass
class Model:
    """What tables are to be, of all changes in the order of arrival, when those up to a seqno have arrived."""

    preset: bool
    changes: list[Placed]
    upto: int = 0

    @property
    def every(self) -> list[Any]:
        arrived = [one for one in self.changes if one.seqno <= self.upto]
        rows = [(*(one.key or (None, None)), one.amount, one.note, one.seqno, one.amount is None) for one in arrived]
        return sorted(rows, key=repr)

    @property
    def versions(self) -> list[Any]:
        """Of each key what each transaction left, in the source's order, until the next one that had the key."""
        found = []
        for key in {one.key for one in self.changes if one.key}:
            left, note = dict[tuple[int, int], tuple[Decimal | None, str | None]](), UNKNOWN
            for place, one in self.in_order(key):
                if one.seqno > self.upto:
                    note = UNKNOWN
                    continue
                note = note if self.preset and one.note == LEFT_OUT else one.note
                left[place] = one.amount, note
            places = sorted(left)
            for place, following in itertools.zip_longest(places, places[1:]):
                if left[place][0] is not None:
                    at = 0 if self.preset else 1
                    until = following[at] if following else None
                    found.append((*key, *left[place], place[1], place[at], until, following is None))
        return sorted(found, key=repr)

    @property
    def newest(self) -> list[Any]:
        return sorted((one[:5] for one in self.versions if one[7]), key=repr)

    def in_order(self, key: Key) -> list[tuple[tuple[int, int], Placed]]:
        """The changes of that key, truncations among them, as the source has them, each with its place.

        What has no position comes after all that arrived before it.
        """
        found, last = list[tuple[tuple[int, int], Placed]](), 0
        for one in self.changes:  # in the order of arrival
            if one.key in (key, None):
                last = max(last, one.position or 0)
                found.append(((last if one.position is None else one.position, one.seqno), one))
        return sorted(found, key=lambda one: one[0])

    def as_sources_are(self) -> "Model":
        """Where there is no row, no column of it is left out."""
        changes = list(self.changes)
        for key in {one.key for one in changes if one.key}:
            there = False
            for _, one in self.in_order(key):
                if one.note == LEFT_OUT and not there:
                    changes[changes.index(one)] = one._replace(note=f"of {one.seqno}")
                there = one.amount is not None
        return Model(self.preset, changes)

    def assert_found(self, folder: Path) -> None:
        found = found_in(folder)
        for topic, expected in (("newest", self.newest), ("versions", self.versions), ("every", self.every)):
            unknown = {(*one[:2], one[4]) for one in expected if one[3] == UNKNOWN}
            rows = [(*one[:3], UNKNOWN if (*one[:2], one[4]) in unknown else one[3], *one[4:]) for one in found[topic]]
            assert sorted(rows, key=repr) == expected


def rows_of(changes: Iterable[Placed], *, preset: bool) -> list[Row]:
    """Rows as staging has them: what is computed on what was left out says so; of a plain column its value does."""
    made: list[Row] = []
    for one in changes:
        if one.key is None:
            made += [(topic, TRUNCATED, None) for topic in ("newest", "versions", "every")]
            continue
        key = dict(zip(("id", "kind"), one.key, strict=True))
        text = json.dumps(key, separators=(",", ":"), ensure_ascii=False)
        unknown = preset and one.note == LEFT_OUT
        loud = None if unknown or one.note is None else one.note.upper()
        value = f'{json.dumps(key)[:-1]}, "amount": {one.amount}, "note": {json.dumps(one.note)}'
        value = f'{value}, "loud": {json.dumps(loud)}}}'
        state = (json.dumps({"left_out": ["note", "loud"] if one.seqno % 2 else ["loud"]}),) if unknown else ()
        row = (text, None if one.amount is None else value, *state)
        made += [(topic, *row) for topic in ("newest", "versions", "every")]
    return made


def found_in(folder: Path) -> dict[str, list[Any]]:
    more = {"newest": (), "versions": ("valid_from", "valid_to", "current"), "every": ("_deleted",)}
    found = {}
    for topic, columns in more.items():
        names = ("id", "kind", "amount", "note", "_seqno", *columns)
        table = DeltaTable(str(folder / topic)).to_pyarrow_table().to_pylist()
        for one in table if topic != "every" else ():  # it is of the version that the note is of
            assert one["loud"] == (one["note"] and one["note"].upper())
        found[topic] = sorted((tuple(one[name] for name in names) for one in table), key=repr)
    return found


class CutError(Exception):
    """What ends a delivery before its snapshot."""


@contextmanager
def cut_short() -> Iterator[None]:
    def cut(*_: object) -> None:
        raise CutError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "take", cut)
        with pytest.raises(CutError):
            yield


def deliver(spark: Any, staging: Staging, folder: Path) -> None:
    config = load(staging.folder / "zync.yaml")
    delivery.sync_to_tables(spark, config, staging.path, str(folder), threading.Event(), until_caught_up=True)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize="ZYNC_TEST_HISTORIES" not in os.environ,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(preset=st.booleans(), syncs=SYNCS, data=st.data())
def test_tables_are_what_the_source_says(spark: Any, preset: bool, syncs: list[Any], data: st.DataObject) -> None:
    """Any changes in transactions that become whole late, or have no position, delivered in parts and anew."""
    if not preset:
        syncs = [[[one for one in changes if one[0]] for changes in transactions] for transactions in syncs]
    count = sum(map(len, syncs))
    placed_at = data.draw(st.permutations(range(100, 100 + count)))
    unplaced = data.draw(st.lists(st.sampled_from([False, False, True]), min_size=count, max_size=count))
    ways = data.draw(st.lists(WAYS, min_size=len(syncs), max_size=len(syncs)))
    with tempfile.TemporaryDirectory() as name:
        staging, folder = Staging(Path(name), "localhost:1"), Path(name) / "lake" / "tables"
        staging.config(CONFIG.format(preset=PRESET if preset else ""))
        (Path(name) / "rule.sql").write_text(RULE)
        flat = [changes for transactions in syncs for changes in transactions]
        positions = [
            None
            if not preset or (unplaced[number] and all(key and note != LEFT_OUT for key, _, note in changes))
            else at
            for number, (at, changes) in enumerate(zip(placed_at, flat, strict=True))
        ]
        placed = [
            Placed(*change, positions[number], number + 1) for number, changes in enumerate(flat) for change in changes
        ]
        model, given_positions = Model(preset, placed).as_sources_are(), iter(positions)
        for way, transactions in zip([*ways[:-1], "whole"], syncs, strict=True):
            first, model.upto = model.upto + 1, model.upto + len(transactions)
            seqnos = range(first, model.upto + 1)
            mine = [rows_of((one for one in model.changes if one.seqno == seqno), preset=preset) for seqno in seqnos]
            staging.sync(mine, positions=given_positions)
            if way == "cut":
                with cut_short():
                    deliver(spark, staging, folder)
                continue
            for _ in range({"later": 0, "whole": 1, "twice": 2}[way]):
                deliver(spark, staging, folder)
                model.assert_found(folder)
        anew = Path(name) / "lake" / "anew"
        deliver(spark, staging, anew)  # all in one batch
        assert found_in(anew) == found_in(folder)
