"""For any rows of any transactions, delivered in any parts, tables are what a model makes of the source's order."""

import json
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.deliver.conftest import Row, Staging
from zync.deliver import snapshots, tables
from zync.yaml import load

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
    "SELECT seqno, value:id::int AS id, value:kind::string AS kind, value:amount::decimal(10, 2) AS amount "
    "FROM arriving"
)
Key = tuple[int, str | None]

KEYS = st.tuples(st.integers(-2, 2), st.sampled_from(["a", "é", None]))
AMOUNTS = st.decimals(-100, 100, places=2)
UPSERT = st.tuples(KEYS, AMOUNTS).map(lambda one: [one])
DELETE = st.tuples(KEYS, st.none()).map(lambda one: [one])
RENAME = st.tuples(KEYS, KEYS, AMOUNTS).map(lambda one: [(one[0], None), (one[1], one[2])])
TRANSACTION = st.lists(st.one_of(UPSERT, UPSERT, DELETE, RENAME), min_size=1, max_size=4).map(
    lambda parts: [change for part in parts for change in part]
)
SYNCS = st.lists(st.lists(TRANSACTION, min_size=1, max_size=5), min_size=2, max_size=4)
WAYS = st.sampled_from(["later", "whole", "whole", "cut", "twice"])


@dataclass
class Model:
    """What tables are to be. changes: key, amount (None: deleted), position and seqno, in the order of arrival."""

    preset: bool
    changes: list[tuple[Key, Decimal | None, int, int]]

    @property
    def every(self) -> list[Any]:
        return sorted(((*key, amount, seqno, amount is None) for key, amount, _, seqno in self.changes), key=repr)

    @property
    def versions(self) -> list[Any]:
        """Of each key what each transaction left, in the source's order, until the next one that had the key."""
        found = []
        for key in {one[0] for one in self.changes}:
            left = {(position, seqno): amount for k, amount, position, seqno in self.changes if k == key}
            places = sorted(left)
            for place, following in zip(places, [*places[1:], None], strict=True):
                if left[place] is not None:
                    at = 0 if self.preset else 1
                    until = following[at] if following else None
                    found.append((*key, left[place], place[1], place[at], until, following is None))
        return sorted(found, key=repr)

    @property
    def newest(self) -> list[Any]:
        return sorted((one[:4] for one in self.versions if one[6]), key=repr)


def rows_of(changes: list[tuple[Key, Decimal | None]]) -> list[Row]:
    made: list[Row] = []
    for (number, kind), amount in changes:
        key = {"id": number, "kind": kind}
        text = json.dumps(key, separators=(",", ":"), ensure_ascii=False)
        value = None if amount is None else json.dumps(key)[:-1] + f', "amount": {amount}}}'
        made += [(topic, text, value) for topic in ("newest", "versions", "every")]
    return made


def found_in(folder: Path) -> dict[str, list[Any]]:
    more = {"newest": (), "versions": ("valid_from", "valid_to", "current"), "every": ("_deleted",)}
    found = {}
    for topic, columns in more.items():
        names = ("id", "kind", "amount", "_seqno", *columns)
        table = DeltaTable(str(folder / topic)).to_pyarrow_table().to_pylist()
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
    tables.sync_to_tables(spark, config, staging.path, str(folder), threading.Event(), until_caught_up=True)


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
    """Upserts, deletes and changes of keys in transactions that become whole late, delivered in parts and anew."""
    count = sum(map(len, syncs))
    positions = data.draw(st.permutations(range(100, 100 + count)) if preset else st.just([None] * count))
    ways = data.draw(st.lists(WAYS, min_size=len(syncs), max_size=len(syncs)))
    with tempfile.TemporaryDirectory() as name:
        staging, folder = Staging(Path(name), "localhost:1"), Path(name) / "lake" / "tables"
        staging.config(CONFIG.format(preset=PRESET if preset else ""))
        (Path(name) / "rule.sql").write_text(RULE)
        model, given_positions = Model(preset, []), iter(positions)
        for way, transactions in zip([*ways[:-1], "whole"], syncs, strict=True):
            mine = [next(given_positions) for _ in transactions]
            first = staging.seqno + 1
            staging.sync(map(rows_of, transactions), positions=iter(mine))
            for number, changes in enumerate(transactions):
                place = (mine[number] or 0, first + number)
                model.changes += [(key, amount, *place) for key, amount in changes]
            if way == "cut":
                with cut_short():
                    deliver(spark, staging, folder)
                continue
            for _ in range({"later": 0, "whole": 1, "twice": 2}[way]):
                deliver(spark, staging, folder)
                expected = {"newest": model.newest, "versions": model.versions, "every": model.every}
                assert found_in(folder) == expected
        anew = Path(name) / "lake" / "anew"
        deliver(spark, staging, anew)  # all in one batch
        assert found_in(anew) == found_in(folder)
