"""Tables keep the value of what Debezium left out, and of what rules computed on it."""

from itertools import zip_longest
from typing import Any

import pytest

from tests.cdc.left_out import LEFT_OUT, Database, Record, Table, change, move

RULE = (
    "SELECT seqno, _order, row:id::int AS id, row:n::int AS n, row:note::string AS note, "
    "length(row:note::string) AS size, parse_json(row:note::string):a::int AS a, op = 'd' AS _delete FROM {table}"
)
APPEND = f"{RULE} WHERE row:id::int < 100"
FIRST, SECOND, OTHER, CHANGED = ('{"a": 1}', '{"a": 20}', '{"a": 300}', '{"a": 4000}')

KEPT = [
    [change("c", 1, n=1, note=FIRST), change("c", 2, n=1, note=SECOND)],
    [change("u", 1, n=2, note=LEFT_OUT), change("u", 2, n=2, note=CHANGED), change("u", 2, n=3, note=LEFT_OUT)],
]


def moved(base: int) -> list[list[Record]]:
    """Rows that get other keys, which are after `base`: once, or twice in one batch; onto one that was another's."""
    one, two, nine, ten, eight = (base + key for key in (1, 2, 9, 10, 8))
    return [
        [
            change("c", one, n=1, note=FIRST),
            change("c", two, n=1, note=SECOND),
            change("c", nine, n=1, note=OTHER),
            change("u", one, n=2, note=LEFT_OUT),
        ],
        [
            *move(one, ten, n=3, note=LEFT_OUT),
            change("d", nine),
            *move(two, eight, n=3, note=LEFT_OUT),
            *move(eight, nine, n=4, note=LEFT_OUT),
        ],
        [change("u", ten, n=4, note=LEFT_OUT), change("u", nine, n=5, note=LEFT_OUT)],
    ]


APART, TOGETHER, MISSED = 100, 200, 300
GONE = [
    [change("c", MISSED + 10, n=1, note=OTHER)],
    [change("d", MISSED + 10), *move(MISSED + 1, MISSED + 10, n=3, note=LEFT_OUT)],
]
CASES = [KEPT, moved(APART), [[one for step in moved(TOGETHER) for one in step]], GONE]
STEPS = [[one for step in steps for one in step] for steps in zip_longest(*CASES, fillvalue=[])]
APPLIES = ["upsert", "history", "append"]


class Tables:
    """What a rule made of all cases, which are apart by their keys, in a table for each way to apply it."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def of(self, apply: str, base: int) -> list[dict[str, Any]]:
        """The rows with keys of that case, less what its keys begin with."""
        found = self.database.delivered(f"docs_{apply}")
        return [{**one, "id": one["id"] - base} for one in found if base <= one["id"] < base + 100]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Tables:
    """Delivered after each step."""
    rules = {f"_{apply}": APPEND if apply == "append" else RULE for apply in APPLIES}
    docs = Table(rules, STEPS, apply={f"_{apply}": apply for apply in APPLIES})
    database = Database(tmp_path_factory.mktemp("delivered"), spark, {"docs": docs})
    for _ in STEPS:
        database.take()
        database.deliver()
    return Tables(database)


@pytest.mark.parametrize("apply", APPLIES)
def test_tables_keep_what_was_computed_on_what_was_left_out(tables: Tables, apply: str) -> None:
    delivered = tables.of(apply, 0)
    found = [(one["id"], one["n"], one["size"], one["a"]) for one in delivered]
    before, after = [(1, 1, 8, 1), (2, 1, 9, 20)], [(1, 2, 8, 1), (2, 3, 11, 4000)]
    if apply == "upsert":
        assert found == after
    elif apply == "history":
        assert found == sorted([*before, *after, (2, 2, 11, 4000)])
    else:
        assert found == sorted(
            [*before, (1, 2, None, None), (2, 2, 11, 4000), (2, 3, None, None)], key=lambda one: one[:2]
        )
        left_out = [dict(one["_left_out"] or []) for one in delivered]
        nowhere = {"position": -1, "seqno": -1}
        some = {"note": nowhere, "size": nowhere, "a": nowhere}
        assert left_out == [{}, some, {}, {}, some]


@pytest.mark.parametrize("apply", ["upsert", "history"])
@pytest.mark.parametrize("together", [True, False])
def test_a_row_that_got_another_key_keeps_what_was_left_out(tables: Tables, apply: str, *, together: bool) -> None:
    """In a batch with the old row or later; once, or twice in one batch; onto a key that was another row's."""
    newest = [one for one in tables.of(apply, TOGETHER if together else APART) if one.get("current", True)]
    found = [(one["id"], one["n"], one["note"], one["size"], one["a"]) for one in newest]
    assert found == [(9, 5, SECOND, 9, 20), (10, 4, FIRST, 8, 1)]


@pytest.mark.parametrize("apply", ["upsert", "history"])
def test_what_a_row_was_by_an_old_key_that_is_not_there_is_null_and_says_so(tables: Tables, apply: str) -> None:
    newest = tables.of(apply, MISSED)[-1]
    assert (newest["n"], newest["note"], newest["size"]) == (3, None, None)
    if apply == "upsert":
        assert {name: place["seqno"] for name, place in newest["_left_out"]} == {"note": -1, "size": -1, "a": -1}
    else:
        assert {name for name, _ in newest["_left_out"]} == {"note", "size", "a"}
