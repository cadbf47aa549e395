"""The rule for completion in plain Python, and Spark beside it, over histories madder than any connector's."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cdc.histories import (
    Decision,
    Step,
    Together,
    Transaction,
    end,
    expected,
    history,
    is_of,
    members,
    parts,
    row,
    some_cuts,
    sync_small_files,
)
from tests.cdc.test_captures import SEED, pipeline
from tests.conftest import rows
from tests.sizes import as_large
from zync.errors import UsageError
from zync.operate.explain import explain
from zync.operate.txn_show import show
from zync.project.load import load as read_config
from zync.sync import judge

VERSIONS = ("3.6.0.Final", "3.7.0.Final")
SEEDS = {f"history {seed}": history(random.Random(seed), VERSIONS[seed % 2]) for seed in range(2)}
UNCOUNTED = {version: history(random.Random(SEED), version) for version in VERSIONS}


def message(order: int) -> dict[str, Any]:
    """A logical message, as PostgreSQL's connector 3.7.0 was seen to send it: without headers."""
    source = {"version": "3.7.0.Final", "connector": "postgresql", "schema": "", "table": "", "lsn": order}
    value = {"op": "m", "source": source, "transaction": {"id": f"1:{order}", "total_order": order}}
    return {"topic": "p.message", "value": value | {"message": {"prefix": "p", "content": "bTEwMDA="}}}


def of_version(version: str, one: dict[str, Any]) -> dict[str, Any]:
    one["value"]["source"]["version"] = version
    return one


def of_life(life: int, txn: int, order: int, x: int, run: str = "A") -> dict[str, Any]:
    """A row as 3.7 sends it, of the first or second life of a database: LSNs begin again, the time does not."""
    made = row(txn, run, order, "t", x)
    made["value"]["source"] |= {"version": "3.7.0.Final", "lsn": 1000 // life + order, "ts_ms": 10**12 * life}
    return made


def at(lsn: int, one: dict[str, Any]) -> dict[str, Any]:
    return {**one, "value": {**one["value"], "source": {**one["value"]["source"], "lsn": lsn}}}


def random_parts(records: list[dict[str, Any]]) -> list[Step]:
    return parts(records, some_cuts(random.Random(SEED), records))


CUTS_OF_LIVES = {"at once": set[int](), "later": {3}, "in parts": {3, 5}}
IMAGES = {"same image": 1, "another image": 9}


def made_anew(cuts: set[int], image: int) -> list[Step]:
    first = [of_life(1, 5, 1, 1), of_life(1, 5, 2, 2), end(5, t=2)]
    again = [of_life(1, 5, 1, 1, "B"), of_life(2, 5, 1, image, "C"), of_life(2, 5, 2, 2, "C")]
    steps = parts([*first, *again, of_life(2, 5, 2, 2, "D")], cuts)
    redrive = Decision("redrive", 5, "the database was made anew", aside=True)
    return [*steps, *([] for _ in range(3 - len(steps))), [redrive]]


def two_lives(version: str, cuts: set[int]) -> list[Step]:
    lives = [of_version(version, one) for one in (of_life(1, 5, 2, 2), of_life(2, 5, 1, 1, "B"))]
    return parts([*lives, end(5, t=2)], cuts)


def without_tables(cuts: set[int]) -> list[Step]:
    last, short = end(1, t=1, u=1), end(2, t=2)
    last["value"]["data_collections"] = None
    del short["value"]["data_collections"]
    return parts([row(1, "A", 2, "u", 2), last, row(2, "A", 1, "t", 1), short, row(1, "A", 1, "t", 1)], cuts)


def messages(*, only: bool) -> list[Step]:
    ids = [f"io.debezium.connector.postgresql.LogicalDecodingMessageMonitor$LogicalDecodingMessageId@{n}" for n in "ab"]
    last = end(1) if only else end(1, t=2)
    last["value"]["event_count"] += 2
    last["value"]["data_collections"] += [{"data_collection": name, "event_count": 1} for name in ids]
    numbered = [("A", 1), ("A", 4), ("B", 1), ("B", 4)]
    sent = [] if only else [of_version("3.7.0.Final", row(1, run, order, "t", order)) for run, order in numbered]
    return parts([message(2), message(3), message(2), message(3), *sent, last], {2, 5})


def sent_twice(version: str) -> list[Step]:
    """As Connect's producers do, which are not idempotent by default: a batch, with rows 1 and 4, has no answer."""

    def of(txn: int, *orders: int) -> list[dict[str, Any]]:
        return [of_version(version, row(txn, "A", order, "t", order)) for order in orders]

    records = [*of(1, 1, 4, 1, 4), end(1, t=4), *of(1, 2, 3), *of(1, 2), *of(2, 1, 1), end(3, t=1), *of(3, 1)]
    records += [*of(4, 1, 1), end(4, t=2)]
    return [*parts(records, {2, 5, 6}), [Decision("release", 2, "its END is lost")], [*of(3, 1), *of(4, 1)]]


TOLD = (None, "source", "transaction")
WHEN = {"later": True, "at once": False}


def late_end(told: str | None, *, cut: bool) -> list[Step]:
    first = row(1, "A", 1, "t", 1)
    if told:
        first["value"][told]["commit_lsn"] = 8
    release, last = Decision("release", 1, "its END is lost"), [end(1, t=1), end(2)]
    then: list[Step] = [[release], last] if cut else [[release, *last], []]
    return [[first], *then, [Decision("drop", 1, "known", aside=True)]]


def end_with_its_place() -> dict[str, Any]:
    found = end(1, t=1)
    found["value"]["commit_lsn"] = 7
    return found


CASES: dict[str, list[Step]] = {
    **{name: random_parts(records) for name, records in SEEDS.items()},
    **{
        f"made anew, {when}, {image}": made_anew(cuts, IMAGES[image])
        for when, cuts in CUTS_OF_LIVES.items()
        for image in IMAGES
    },
    **{
        f"two lives, {version}, {when}": two_lives(version, cuts)
        for version in VERSIONS
        for when, cuts in {"at once": set[int](), "later": {1, 2}}.items()
    },
    **{f"without tables, {when}": without_tables(cuts) for when, cuts in {"once": set[int](), "cut": {1, 2}}.items()},
    "sent again": [
        [one]
        for one in (
            end(1, t=2),
            end(1, t=1, u=1),
            row(1, "A", 1, "t", 1),
            row(1, "A", 2, "t", 2),
            row(1, "B", 1, "t", 2),
            row(1, "B", 2, "u", 3),
        )
    ],
    **{f"messages, {only}": messages(only=only) for only in (False, True)},
    **{f"sent twice, {version}": sent_twice(version) for version in VERSIONS},
    "last row": [
        [at(30, row(1, "A", 1, "t", 1))],
        [at(40, row(1, "A", 2, "t", 2))],
        [end(2, t=1)],
        [Decision("release", 1, "its END is lost")],
        [at(5, row(2, "A", 1, "t", 3)), at(35, row(1, "A", 3, "t", 4))],
        [Decision("redrive", 1, "it is wanted", aside=True)],
    ],
    **{f"late end, {told}, {when}": late_end(told, cut=cut) for told in TOLD for when, cut in WHEN.items()},
    "end": [[row(1, "A", 1, "t", 1), end_with_its_place()]],
}


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Together:
    """All CASES in one pipeline."""
    return Together(tmp_path_factory.mktemp("together"), spark, CASES)


def test_of_all_that_came_together_nothing_is_wrong(together: Together) -> None:
    assert together.violations == []


@pytest.mark.parametrize("seed", range(2))
def test_spark_completes_what_the_rule_says_and_when(together: Together, seed: int) -> None:
    name = f"history {seed}"
    check(together.rows(name), together.in_flight(name), expected(SEEDS[name], VERSIONS[seed % 2]))


def test_of_several_connectors_with_the_same_ids_spark_completes_what_the_rule_says(tmp_path: Path, spark: Any) -> None:
    chance, version = random.Random(SEED), "3.7.0.Final"
    records = history(chance, version)
    for record in records:
        if chance.random() < 0.4:
            record["topic"] = f"q{record['topic'][1:]}"
    pipeline(tmp_path, "p")
    text = (tmp_path / "zync.yaml").read_text()
    several = text.replace("topic: p.transaction", "connectors: [{topic: p.transaction}, {topic: q.transaction}]")
    (tmp_path / "zync.yaml").write_text(several)
    config = read_config(tmp_path / "zync.yaml")
    syncer = sync_small_files(tmp_path, records, some_cuts(chance, records), spark, config=config)
    assert syncer.bookkeeping is not None
    in_flight = {one["txn"]: members(one) for one in syncer.bookkeeping.in_flight.to_pylist()}
    staging = [one | {"members": members(one)} for one in rows(tmp_path / "staging") if one["records"]]
    check(staging, in_flight, expected(records, version, several=True))


@pytest.fixture(scope="module")
def uncounted(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Together:
    """A history of each of two versions, in one pipeline that does not wait for rows of table u."""
    cases = {version: random_parts(records) for version, records in UNCOUNTED.items()}
    return Together(tmp_path_factory.mktemp("uncounted"), spark, cases, ", uncounted: [s.u]")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_uncounted_completes_nothing_and_holds_nothing_up(uncounted: Together, version: str) -> None:
    truth = expected(UNCOUNTED[version], version, uncounted="u")
    check(uncounted.rows(version), uncounted.in_flight(version), truth)


def check(
    staging: list[dict[str, Any]],
    in_flight: dict[str, list[int]],
    truth: tuple[dict[str, tuple[str, list[int]]], dict[str, Transaction], dict[int, str]],
) -> None:
    """Staging is what the rule says, `truth` being what `expected` found."""
    done, flying, aside = truth
    assert len(done) >= 3
    assert {"duplicate", "late"} <= {*aside.values()}
    kinds = ("done", "quarantined")
    settled = {f"{one['txn']}@{one['seqno']}": (one["kind"], one["members"]) for one in staging if one["kind"] in kinds}
    assert settled == done
    assert in_flight.keys() == flying.keys()
    assert all(is_of(in_flight[txn], one) for txn, one in flying.items())
    undecided = {n for txn, one in flying.items() for n in {*in_flight[txn]} & {*one.repeated}}
    assert {
        n: one["kind"] for one in staging if one["kind"] in ("late", "duplicate", "ignored") for n in one["members"]
    } == {n: kind for n, kind in aside.items() if n not in undecided}


@pytest.mark.parametrize("cuts", CUTS_OF_LIVES)
@pytest.mark.parametrize("image", IMAGES)
def test_rows_of_a_database_that_was_made_anew_are_late_and_no_duplicates(
    together: Together, cuts: str, image: str
) -> None:
    found = together.rows(f"made anew, {cuts}, {image}")
    kinds = {one["seqno"]: one["kind"] for one in found if one["kind"] != "output" and one["sync"] < 4}
    assert kinds == {3: "done", 4: "duplicate", 5: "late", 6: "late", 7: "duplicate"}
    assert [one["kind"] for one in found if one["sync"] == 4].count("output") == 2  # redriven


@pytest.mark.parametrize("cuts", ["at once", "later"])
@pytest.mark.parametrize("version", VERSIONS)
def test_rows_of_two_lives_of_a_database_never_go_out_as_one_transaction(
    together: Together, cuts: str, version: str
) -> None:
    """The first life ended within a transaction; together with a row of the second it is as many as END counts."""
    staging = together.rows(f"two lives, {version}, {cuts}")
    (found,) = [one for one in staging if one["kind"] == "quarantined"]
    assert (found["seqno"], found["members"]) == (3, [1, 2, 3])
    assert "another transaction that has the same id" in found["reason"]


@pytest.mark.parametrize("cuts", ["once", "cut"])
def test_an_end_that_counts_no_tables_is_satisfied_by_its_count_alone(together: Together, cuts: str) -> None:
    name = f"without tables, {cuts}"
    found = {one["txn"]: (one["kind"], one["members"]) for one in together.rows(name) if one["kind"] != "output"}
    assert found == {"1": ("done", [1, 2, 5]), "2": ("pending", [3, 4])}
    shown = show(together.raw, together.staging, together.txn(name, 2), together.config)
    assert shown["missing"] == ["END counts 2 rows, 1 are here"]


def test_rows_sent_again_count_for_their_run_in_later_syncs(together: Together) -> None:
    (done,) = [row for row in together.rows("sent again") if row["kind"] == "done"]
    assert (done["seqno"], done["members"]) == (6, [1, 2, 3, 4, 6])


def test_rows_of_one_run_are_judged_by_their_sums_alone(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_by_one(*_: Any) -> None:
        msg = "judged row by row"
        raise AssertionError(msg)

    monkeypatch.setattr(judge, "_by_run", one_by_one)
    first = [row(1, "A", n, "t" if n % 3 else "u", n) for n in range(1, 31)]
    second = [row(2, "", 2, "t", 2), end(2, t=1, u=1), row(2, "", 1, "u", 1)]
    records = [*first[20:], *second, end(1, t=20, u=10), *first[:20]]
    sync_small_files(tmp_path, records, {5, 12, 20}, spark)
    done = {row["txn"]: row["seqno"] for row in rows(tmp_path / "staging") if row["kind"] == "done"}
    assert done == {"2": 13, "1": len(records)}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Callable[[str], dict[str, dict[str, Any]]]:
    """The rows, by transaction, of syncs as large ones are done, where Spark evaluates what is decoded by itself."""
    waiting: dict[str, list[Step]] = {}
    for by_table in (2, 10**15):
        last = end(1, t=by_table)
        last["value"]["event_count"] = 10**15
        records = [row(1, "A", 1, "t", 1), last, row(2, "A", 1, "t", 1), end(2, t=1)]
        waiting[str(by_table)] = parts(records, {2})
    odd, null = row(1, "A", 1, "t", 1), row(3, "A", 1, "t", 1)
    odd["value"]["transaction"]["total_order"], null["value"]["transaction"]["total_order"] = "one", None
    uncounted = end(4, t=1)
    del uncounted["value"]["event_count"]
    good = [row(2, "A", 1, "t", 1), end(2, t=1)]
    bad = parts([odd, end(1, t=1), *good, null, end(3), row(4, "A", 1, "t", 1), uncounted], {2})
    with pytest.MonkeyPatch.context() as patch:
        as_large(patch)
        found = Together(tmp_path_factory.mktemp("large"), spark, {**waiting, "bad": bad})
    return lambda name: {one["txn"]: one for one in found.rows(name) if one["txn"]}


@pytest.mark.parametrize("by_table", [2, 10**15])
def test_an_end_that_counts_more_than_there_can_be_is_waited_for(
    large: Callable[[str], dict[str, dict[str, Any]]], by_table: int
) -> None:
    kinds = {txn: one["kind"] for txn, one in large(str(by_table)).items()}
    assert kinds == {"1": "pending", "2": "done"}


def test_what_has_no_number_where_one_belongs_is_said_to_be_bad(
    large: Callable[[str], dict[str, dict[str, Any]]],
) -> None:
    found = {txn: (one["kind"], one["reason"]) for txn, one in large("bad").items()}
    bad = "the done condition fails on it"
    assert found == {"1": ("pending", bad), "2": ("done", None), "3": ("done", None), "4": ("pending", bad)}


@pytest.mark.parametrize("only_messages", [False, True])
def test_logical_messages_sent_again_are_duplicates_though_they_do_not_say_by_which_run(
    together: Together, *, only_messages: bool
) -> None:
    done, repeated = ([1, 2, 5], [3, 4]) if only_messages else ([1, 2, 5, 6, 9], [3, 4, 7, 8])
    found = together.members(f"messages, {only_messages}", "done", "duplicate")
    assert found == {"done": done, "duplicate": repeated}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_producer_sent_twice_stands_in_for_no_row_that_is_missing(together: Together, version: str) -> None:
    name = f"sent twice, {version}"
    assert together.members(name, "done", "released", "duplicate", "late") == {
        "done": [1, 2, 5, 6, 7, 11, 12],
        "released": [9, 16],
        "duplicate": [3, 4, 8, 10, 14, 17, 18],
        "late": [],
    }


def test_without_an_end_the_last_row_says_where_a_transaction_is_in_the_source(together: Together) -> None:
    """Released before it came, or late; where END says it, that is so, and comes before its rows as well."""
    found = together.rows("last row")
    assert [one["sync"] for one in found if one["kind"] == "late"] == [5]
    out = [one for one in found if one["kind"] == "output"]
    assert [one["position"] for one in sorted(out, key=lambda one: one["kafka"]["offset"])] == [40, 40, 9, 35]


@pytest.mark.parametrize("cut", WHEN)
@pytest.mark.parametrize("told", TOLD, ids=str)
def test_an_end_that_comes_after_a_release_is_told_of_and_rows_may_say_where_the_commit_is(
    together: Together, told: str | None, cut: str
) -> None:
    found = together.rows(f"late end, {told}, {cut}")
    (late,) = [one for one in found if one["kind"] == "late"]
    assert (late["seqno"], late["txn"]) == (3, "1")
    assert "before this END came" in late["reason"]
    (out,) = [one for one in found if one["kind"] == "output"]  # and none when it was dropped
    assert out["position"] == (8 if told else 1)


def test_an_end_may_say_where_the_commit_is_by_itself(together: Together) -> None:
    assert [one["position"] for one in together.rows("end") if one["kind"] == "output"] == [7]


@pytest.mark.parametrize(
    ("schema", "said"),
    [("a INT, b INTT", "'a INT, b INTT' is not a schema in DDL"), ("a INT, A INT", "'a INT, A INT' has 'a' twice")],
)
def test_a_schema_that_is_none_is_shown_as_the_config_has_it(
    tmp_path: Path, spark: Any, schema: str, said: str
) -> None:
    config = pipeline(tmp_path, "p", more=f'topics: {{p.t: {{schema: "{schema}"}}}}\n')
    with pytest.raises(UsageError, match=rf"^topics.p.t.schema: {said}"):
        explain(spark, config)
