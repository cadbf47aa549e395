"""What is in quarantine is there to be read, mended and sent out; or dropped, on record."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.conftest import rows, zync
from zync.errors import UsageError
from zync.lake.ranges import SeqnoRanges
from zync.operate.decide import decide, undecided
from zync.operate.dlq import groups
from zync.operate.json_errors import why_no_json
from zync.operate.query import query
from zync.operate.replay import replay
from zync.operate.status import describe as describe_status
from zync.operate.status import status
from zync.operate.txn import transactions
from zync.operate.txn_show import describe, show
from zync.operate.verify import verify
from zync.project.load import load as load_config
from zync.raw.append import Appender
from zync.raw.decisions import decisions
from zync.raw.jsonl import load
from zync.spark import sizing
from zync.staging.kinds import UNDECIDED_KINDS
from zync.staging.set_aside import read_set_aside
from zync.staging.table import STAGING_SCHEMA
from zync.sync.syncer import Syncer

_LINES = [
    {"topic": "a", "value": {"txn": 1, "x": "one"}},
    {"topic": "a", "value": {"txn": 2, "x": "2"}},
    {"topic": "a", "value": {"txn": 3, "x": "three"}},
    {"topic": "a", "value": "{broken"},
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Path:
    """A lake where the rule failed on two transactions, and a record did not decode."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "out.sql").write_text("SELECT seqno, txn, CAST(value:x::string AS INT) AS x FROM records")
    (folder / "zync.yaml").write_text(
        "topics: {a: {id: value:txn}}\ntransactions: {done: count(*) = 1}\noutputs: [{topic: out, sql: out.sql}]\n"
    )
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in _LINES))
    load(str(folder / "lake" / "raw"), [str(folder / "in.jsonl")])
    sync(folder, spark)
    return folder


@pytest.fixture
def lake(tmp_path: Path, made: Path) -> Path:
    """A copy of that lake and its config."""
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


def sync(folder: Path, spark: Any) -> Any:
    lake = folder / "lake"
    return Syncer(load_config(folder / "zync.yaml"), str(lake / "raw"), str(lake / "staging"), spark).sync()


def out(folder: Path) -> list[Any]:
    return [
        (row["seqno"], row["kafka"]["offset"], json.loads(row["value"]))
        for row in rows(folder / "lake" / "staging")
        if row["kind"] == "output"
    ]


def sound(folder: Path) -> bool:
    lake, config = folder / "lake", load_config(folder / "zync.yaml")
    claims = verify(str(lake / "raw"), str(lake / "staging"), config, every_version=True, kafka=False)
    return not [claim for claim in claims if claim.violations]


def test_quarantine_is_grouped_by_error(lake: Path) -> None:
    raw, staging = str(lake / "lake" / "raw"), str(lake / "lake" / "staging")
    first, second = groups(raw, staging)
    assert (first["count"], first["rule"], first["ids"]) == (2, "out.sql", ["1", "3"])
    assert first["error"].startswith('[CAST_INVALID_INPUT] The value … of the type "STRING" cannot be cast to "INT"')
    assert (first["example"]["id"], first["example"]["values"]) == ("1", ["'one'"])
    assert (second["count"], second["ids"], second["places"]) == (1, ["a/0/3"], ["a/0/3"])
    seen = show(raw, staging, "1", load_config(lake / "zync.yaml"))
    assert (seen["state"], seen["rule"], seen["records"][0]["offset"]) == ("quarantined", "out.sql", 0)
    assert seen["records"][0]["why"] is None
    seen = show(raw, staging, "a/0/3", load_config(lake / "zync.yaml"))
    where = "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    assert (seen["records"][0]["why"], where in describe(seen)) == (where, True)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b'{"a": {"b": 1, "b": 2}}', 'the key "b" is there twice'),
        (b'{"a": NaN}', "NaN is no number in JSON"),
        (b"[" * 100_000, "it is nested too deep"),
        (b'{"a": "\xff"}', "byte 7 (0xff) is not UTF-8"),
        (b'{"a": 1} x', "Extra data: line 1 column 10 (char 9)"),
        (b"\0\0\0\0\1{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (b'{"a": 1}', None),
    ],
)
def test_why_a_value_is_no_json_is_told_with_its_place(value: bytes, why: str | None) -> None:
    assert why_no_json(value) == why


def test_a_redriven_transaction_goes_out_once_after_the_rule_is_mended(lake: Path, spark: Any) -> None:
    raw, staging = str(lake / "lake" / "raw"), str(lake / "lake" / "staging")
    decide(raw, ["1"], "redrive", "try", who="ann")
    outcome = sync(lake, spark)
    assert (outcome.transactions, outcome.set_aside) == (0, {"quarantined": 1})
    assert [one["count"] for one in groups(raw, staging)] == [2, 1]  # it failed again
    (lake / "out.sql").write_text("SELECT seqno, txn, TRY_CAST(value:x::string AS INT) AS x FROM records")
    assert [*undecided(raw, staging, [], "quarantined", among=UNDECIDED_KINDS).chosen] == ["3", "a/0/3", "1"]
    decide(raw, ["1", "1", "3", "2", "a/0/3"], "redrive", "mended", who="ann")
    outcome = sync(lake, spark)
    assert (outcome.transactions, outcome.in_flight) == (2, 0)
    assert outcome.set_aside == {"quarantined": 1, "ignored": 2}  # broken is broken; 1 twice, and 2 is done
    assert out(lake) == [
        (2, 0, {"txn": "2", "x": 2}),
        (6, 1, {"txn": "1", "x": None}),
        (8, 2, {"txn": "3", "x": None}),
    ]
    assert [one["ids"] for one in groups(raw, staging)] == [["a/0/3"]]
    config = load_config(lake / "zync.yaml")
    assert status(raw, staging, config).undecided == {"quarantined": 1, "late": 0}
    assert sound(lake)
    decide(raw, ["a/0/3"], "drop", "a probe", who="ann")
    assert sync(lake, spark).set_aside == {"discarded": 1}
    assert groups(raw, staging) == []
    told = describe_status(status(raw, staging, config))
    assert re.search(r"set aside quarantined \d+ records, .*; to decide about \(`zync dlq list`\): none", told)
    assert [row["reason"] for row in rows(lake / "lake" / "staging") if row["kind"] == "discarded"] == ["ann: a probe"]
    assert sound(lake)


def test_who_decided_waits_for_the_next_sync_before_deciding_again(lake: Path, spark: Any) -> None:
    """Else the second would come to nothing where the first one's redrive failed again, but not in a replay."""
    raw, staging = str(lake / "lake" / "raw"), str(lake / "lake" / "staging")
    decide(raw, ["1"], "redrive", "try", who="ann")
    assert [(one["ids"], one["decided"]) for one in groups(raw, staging)] == [(["1", "3"], 1), (["a/0/3"], 0)]
    assert "decided about: 1, on which the next sync acts" in zync("dlq", "list", cwd=lake).stdout
    again = zync("dlq", "drop", "1", "--reason", "x", cwd=lake, check=False)
    assert again.returncode == 2
    assert "of transaction '1' there is a decision on record (redrive by ann: try) that no sync has met" in again.stderr
    said = zync("dlq", "drop", "--all", "--reason", "x", "--yes", "--json", cwd=lake).stdout
    assert json.loads(said) == {"decision": "drop", "transactions": ["3", "a/0/3"], "decided": ["1"]}
    sync(lake, spark)
    assert [*undecided(raw, staging, ["1"], None, among=UNDECIDED_KINDS).chosen] == ["1"]


def test_what_is_set_aside_is_what_nobody_decided_about_by_its_newest_failure(tmp_path: Path) -> None:
    place = {"topic": "a", "partition": 0, "offset": 7}
    settled: list[Any] = [
        ("quarantined", 1, "x", None, "first", None),
        ("quarantined", 2, None, place, "broken", None),
        ("done", 3, "x", None, "ann: mended", [1]),
        ("quarantined", 4, "x", None, "anew", None),
        ("quarantined", 5, "x", None, "once more", [4]),
        ("quarantined", 6, "y", None, "dropped", None),
        ("discarded", 7, "y", None, None, [6]),
        ("quarantined", 8, "", None, "no name", None),
        ("done", 9, "", None, None, None),
        ("late", 10, "x", None, "late", None),
        ("late", 11, "x", None, "late", None),
        ("late", 12, "y", None, "late", None),
        ("done", 13, "x", None, "ann: let in", [10]),
        ("quarantined", 14, "y", None, "late and bad", [12]),
        ("quarantined", 15, "", None, "a second of that id", None),
    ]
    names = ("kind", "seqno", "txn", "kafka", "reason")
    lines = [
        dict(zip(names, one[:5], strict=True))
        | {"records": ranges(one[1]), "count": 0, "state": one[5] and json.dumps({"revisits": ranges(*one[5])})}
        for one in settled
    ]
    write_deltalake(tmp_path / "staging", pa.Table.from_pylist(lines, schema=STAGING_SCHEMA))
    found = read_set_aside(DeltaTable(tmp_path / "staging"))
    aside = [
        (txn, row["seqno"], row["reason"], row["records"].to_structs())
        for txn in found.quarantined
        for row in found.quarantined[txn]
    ]
    assert aside == [
        ("a/0/7", 2, "broken", ranges(2)),
        ("x", 5, "once more", ranges(4)),
        ("", 8, "no name", ranges(8)),
        ("", 15, "a second of that id", ranges(15)),
        ("y", 14, "late and bad", ranges(12)),
    ]
    assert {txn: row["records"].to_structs() for txn, row in found.late.items()} == {"x": ranges(11)}
    few = read_set_aside(DeltaTable(tmp_path / "staging"), {"y", "z"})
    assert ([*few.quarantined], [*few.late]) == (["y"], [])


def ranges(*seqnos: int) -> list[dict[str, int]]:
    return [{"first": seqno, "last": seqno} for seqno in seqnos]


@pytest.mark.parametrize("most", [sizing.TINY, 0])
def test_a_part_of_a_transaction_is_not_redriven_as_if_it_were_all_of_it(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Records had no id, by a mistake in the config; by the mended one they are of transactions with other records.

    Spark plans more than a few otherwise, and what says why they are not redriven was not to be planned so.
    """
    monkeypatch.setattr(sizing, "TINY", most)
    monkeypatch.setattr(sizing, "SINGLE_TASK", most)
    config, raw = tmp_path / "zync.yaml", str(tmp_path / "lake" / "raw")
    staging = str(tmp_path / "lake" / "staging")
    (tmp_path / "out.sql").write_text("SELECT seqno, value:k::string AS k FROM records")
    config.write_text(
        "topics: {a: {id: value:tx}}\ntransactions: {done: count(*) = max(value:n::int)}\n"
        "outputs: [{topic: out, sql: out.sql}]\n"
    )

    def came(*values: dict[str, Any]) -> None:
        lines = [json.dumps({"topic": "a", "value": value}) for value in values]
        (tmp_path / "in.jsonl").write_text("\n".join(lines))
        load(raw, [str(tmp_path / "in.jsonl")])

    came(
        {"t": 1, "n": 2, "k": "1a"},
        {"t": 1, "n": 2, "k": "1b"},
        {"t": 2, "n": 2, "k": "2a"},
        {"t": 3, "n": 1, "k": "3"},
    )
    sync(tmp_path, spark)
    config.write_text(config.read_text().replace("value:tx", "value:t"))
    came({"t": 2, "n": 2, "k": "2b"}, {"t": 4, "n": 2, "k": "4a"})
    sync(tmp_path, spark)
    decide(raw, [f"a/0/{offset}" for offset in range(4)], "redrive", "the id was mended", who="ann")
    done = sync(tmp_path, spark)
    assert (done.transactions, done.set_aside) == (1, {"ignored": 3})
    assert out(tmp_path) == [(10, 0, {"k": "3"})]
    refused = {row["seqno"]: row["reason"] for row in rows(Path(staging)) if row["kind"] == "ignored"}
    assert [text.split(" by now")[0] for text in refused.values()] == [f"it is of transaction {n}" for n in (1, 1, 2)]
    assert list(read_set_aside(DeltaTable(staging)).quarantined) == ["a/0/0", "a/0/1", "a/0/2"]
    assert sound(tmp_path)
    replay(spark, load_config(config), raw, str(tmp_path / "lake" / "staging2"), None, staging, lambda _: None)
    whole = [json.loads(row["value"])["k"] for row in rows(tmp_path / "lake" / "staging2") if row["kind"] == "output"]
    assert whole == ["1a", "1b", "3", "2a", "2b"]


def test_of_several_of_one_id_each_is_listed_and_a_decision_is_about_the_first(tmp_path: Path, spark: Any) -> None:
    """An id that comes again once it is forgotten is of another transaction."""
    rules = "outputs: [{topic: out, sql: out.sql}]\n"
    (tmp_path / "zync.yaml").write_text(
        f"topics: {{a: {{id: 'value:txn'}}}}\ntransactions: {{done: count(*) = 1, remember: 1}}\n{rules}"
    )
    (tmp_path / "out.sql").write_text("SELECT seqno, CAST(value:x::string AS INT) AS x FROM a")
    raw, staging = str(tmp_path / "lake" / "raw"), str(tmp_path / "lake" / "staging")
    for values in (({"txn": 1, "x": "bad"}, {"txn": 2, "x": 1}, {"txn": 3, "x": 2}), ({"txn": 1, "x": "worse"},)):
        lines = [json.dumps({"topic": "a", "value": one}) for one in values]
        (tmp_path / "more.jsonl").write_text("\n".join(lines))
        load(raw, [str(tmp_path / "more.jsonl")])
        assert sync(tmp_path, spark).set_aside == {"quarantined": 1}
    assert [(one["count"], one["ids"]) for one in groups(raw, staging)] == [(2, ["1", "1"])]
    (tmp_path / "out.sql").write_text("SELECT seqno, value:x::string AS x FROM a")
    decide(raw, ["1"], "redrive", "the first", who="ann")
    assert [one.decided for one in transactions(raw, staging)] == ["redrive by ann: the first", None]
    assert show(raw, staging, "1", load_config(tmp_path / "zync.yaml"))["decided"] is None  # it shows the newer
    decide(raw, ["1"], "release", "it is in quarantine, not in flight", who="ann")
    assert [one.decided for one in transactions(raw, staging)] == ["redrive by ann: the first", None]
    decide(raw, ["1"], "redrive", "the second", who="ann")
    assert sync(tmp_path, spark).transactions == 2
    assert [row["x"] for _, _, row in out(tmp_path)] == [1, 2, "bad", "worse"]
    assert groups(raw, staging) == []
    assert sound(tmp_path)


def test_what_came_late_is_redriven_as_a_transaction_of_its_own_and_so_in_a_replay(lake: Path, spark: Any) -> None:
    raw, staging = str(lake / "lake" / "raw"), str(lake / "lake" / "staging")

    def come(*values: dict[str, Any]) -> None:
        lines = [json.dumps({"topic": "a", "value": value}) + "\n" for value in values]
        (lake / "in.jsonl").write_text("".join(lines))
        load(raw, [str(lake / "in.jsonl")])

    (lake / "out.sql").write_text(
        "SELECT max(seqno) AS seqno, txn, sum(CAST(value:x::string AS INT)) AS x, count(*) AS n "
        "FROM records GROUP BY txn"
    )
    come({"txn": 2, "x": "20"}, {"txn": 4, "x": "4"}, {"txn": 2, "x": "22"}, {"txn": 4, "x": "bad"})
    assert sync(lake, spark).set_aside == {"late": 3}
    late = [one for one in groups(raw, staging) if one["state"] == "late"]
    assert [(one["count"], one["ids"], one["error"]) for one in late] == [
        (2, ["2", "4"], "its transaction was settled already")
    ]
    come({"txn": 2, "x": "23"})  # late as well, but nobody knew when that was decided
    chosen = undecided(raw, staging, ["2", "4"], None, among=UNDECIDED_KINDS).chosen
    assert chosen == {"2": SeqnoRanges.of([(5, 5), (7, 7)]), "4": SeqnoRanges.of([(8, 8)])}
    decide(raw, chosen, "redrive", "the source was mended", who="ann")
    decide(raw, ["2", "4"], "redrive", "they are not in quarantine", who="bob")
    decide(raw, chosen, "redrive", "twice", who="bob")
    outcome = sync(lake, spark)
    assert (outcome.transactions, outcome.set_aside) == (1, {"late": 1, "quarantined": 1, "ignored": 4})
    assert out(lake)[-1] == (10, 2, {"txn": "2", "x": 42, "n": 2})
    assert (show(raw, staging, "4", load_config(lake / "zync.yaml"))["state"], sound(lake)) == ("quarantined", True)
    seen = show(raw, staging, "2", load_config(lake / "zync.yaml"))
    assert [(one["seqno"], one["topic"]) for one in seen["records"]] == [(5, "a"), (7, "a"), (10, "__zync")]
    assert (seen["state"], seen["reason"]) == ("done", "ann: the source was mended")
    assert [(one["seqno"], one["reason"]) for one in seen["late"]] == [(9, "its transaction was settled already")]
    assert f"late (its transaction was settled already): 9 {seen['late'][0]['topic']}/0/" in describe(seen)
    assert undecided(raw, staging, [], "late", among=UNDECIDED_KINDS).chosen == {"2": SeqnoRanges.of([(9, 9)])}
    decide(raw, undecided(raw, staging, ["2"], None, among=UNDECIDED_KINDS).chosen, "drop", "no more")
    assert sync(lake, spark).set_aside == {"discarded": 1}
    assert [one for one in groups(raw, staging) if one["state"] == "late"] == []
    replay(spark, load_config(lake / "zync.yaml"), raw, str(lake / "lake" / "again"), None, staging, lambda _: None)
    again = [row for row in rows(lake / "lake" / "again") if row["kind"] == "output"]
    assert [(row["seqno"], row["kafka"]["offset"], json.loads(row["value"])) for row in again][1:] == out(lake)[1:]
    come({"txn": 2, "x": "24"})
    assert sync(lake, spark).set_aside == {"late": 1}
    assert sound(lake)


def test_what_is_in_quarantine_is_not_decided_about_while_its_id_is_in_flight_again(lake: Path, spark: Any) -> None:
    transactions = "transactions: {done: count(*) = max(value:n::int), remember: 1}"
    config = (lake / "zync.yaml").read_text().replace("transactions: {done: count(*) = 1}", transactions)
    (lake / "zync.yaml").write_text(config)
    (lake / "in.jsonl").write_text('{"topic": "a", "value": {"txn": 1, "n": 2}}\n')
    load(str(lake / "lake" / "raw"), [str(lake / "in.jsonl")])
    assert sync(lake, spark).in_flight == 1
    raw, staging = str(lake / "lake" / "raw"), str(lake / "lake" / "staging")
    assert [*undecided(raw, staging, ["3"], None, among=UNDECIDED_KINDS).chosen] == ["3"]
    with pytest.raises(UsageError, match="transaction '1' is set aside, and in flight again"):
        undecided(raw, staging, ["3", "1"], None, among=UNDECIDED_KINDS)
    others = undecided(raw, staging, [], "quarantined", among=UNDECIDED_KINDS)
    assert ({*others.chosen}, others.in_flight_again) == ({"3", "a/0/3"}, ["1"])
    for wrong in (["1", "--reason", "x"], ["--all", "3", "--reason", "x"], ["--all", "--reason", " ", "--yes"]):
        done = zync("dlq", "drop", *wrong, cwd=lake, check=False)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    decide(str(lake / "lake" / "raw"), ["1"], "drop", "decided before the sync that saw it in flight")
    outcome = sync(lake, spark)
    assert (outcome.in_flight, outcome.set_aside) == (1, {"ignored": 1})
    (lake / "in.jsonl").write_text('{"topic": "a", "value": {"txn": 1, "n": 2, "x": 7}}\n')
    load(str(lake / "lake" / "raw"), [str(lake / "in.jsonl")])
    assert sync(lake, spark).transactions == 1
    assert "1" in read_set_aside(DeltaTable(staging)).quarantined  # nobody decided about that one
    assert sound(lake)


@pytest.mark.parametrize("at", ["while the first is asked", "while the first commits"])
def test_of_two_decisions_about_the_same_at_the_same_moment_one_is_on_record(
    lake: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    raw, staging = str(lake / "lake" / "raw"), str(lake / "lake" / "staging")
    asked, commit = undecided(raw, staging, [], "quarantined", among=UNDECIDED_KINDS), Appender._attempt  # noqa: SLF001

    def others() -> None:
        monkeypatch.setattr(Appender, "_attempt", commit)
        decide(raw, ["3"], "drop", "a probe", who="bob", since=asked.head)

    def late(*args: Any) -> Any:  # what it was to commit was looked at before
        others()
        return commit(*args)

    if at == "while the first commits":
        monkeypatch.setattr(Appender, "_attempt", late)
    else:
        others()
    with pytest.raises(UsageError, match=r"^of transaction '3' there is a decision meanwhile \(drop by bob: a probe\)"):
        decide(raw, asked.chosen, "redrive", "mended", who="ann", since=asked.head)
    assert [one["who"] for _, one in decisions(DeltaTable(raw))] == ["bob"]
    decide(raw, ["1"], "redrive", "mended", who="ann", since=asked.head)
    assert [one["txn"] for _, one in decisions(DeltaTable(raw))] == ["3", "1"]


def test_a_released_one_is_redriven_without_the_decision_that_released_it(lake: Path, spark: Any) -> None:
    raw, staging = str(lake / "lake" / "raw"), str(lake / "lake" / "staging")
    config = (lake / "zync.yaml").read_text().replace("done: count(*) = 1", "done: count(*) = 2")
    (lake / "zync.yaml").write_text(config)
    (lake / "in.jsonl").write_text(
        '{"topic": "a", "value": {"txn": 9, "x": "nine"}}\n{"topic": "__zync", "value": "not JSON"}\n'
        '{"topic": "a", "value": {"txn": 10, "x": "10"}}\n'
    )
    load(raw, [str(lake / "in.jsonl")])
    sync(lake, spark)
    decide(raw, ["9", "10"], "release", "no more comes", who="ann")
    assert sync(lake, spark).set_aside == {"quarantined": 1}
    seen = query(spark, load_config(lake / "zync.yaml"), "SELECT txn, seqno FROM a WHERE txn IN ('9', '10')").collect()
    assert {row["txn"]: row["seqno"] for row in seen} == {"9": 8, "10": 9}
    (lake / "out.sql").write_text("SELECT seqno, txn, CAST(value:txn AS STRING) AS x FROM records")
    decide(raw, ["9"], "redrive", "mended", who="ann")
    assert sync(lake, spark).transactions == 1
    assert out(lake)[1:] == [(9, 1, {"txn": "10", "x": 10}), (10, 2, {"txn": "9", "x": "9"})]
    assert sound(lake)
    again = str(lake / "lake" / "again")
    assert replay(spark, load_config(lake / "zync.yaml"), raw, again, None, staging, lambda _: None).syncs == 2


def test_the_commands(lake: Path) -> None:
    listed = [json.loads(line) for line in zync("dlq", "list", "--json", cwd=lake).stdout.splitlines()]
    assert [one["count"] for one in listed] == [2, 1]
    assert "rule out.sql" in zync("dlq", "show", "3", cwd=lake).stdout
    assert zync("dlq", "redrive", "2", "--reason", "x", cwd=lake, check=False).returncode == 2
    assert "or --all" in zync("dlq", "drop", "--reason", "x", cwd=lake, check=False).stderr
    said = zync("dlq", "drop", "--all", "--reason", "x", "--yes", "--json", cwd=lake).stdout
    assert json.loads(said) == {"decision": "drop", "transactions": ["1", "3", "a/0/3"]}
