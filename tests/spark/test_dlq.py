"""What is in quarantine is there to be read, mended and sent out; or dropped, on record."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.conftest import rows, zync
from zync.decide import decide, undecided
from zync.errors import UsageError
from zync.ingest.load import load
from zync.operate import groups, show
from zync.staging.table import STAGING_SCHEMA
from zync.sync import Syncer
from zync.transactions.known import quarantined_rows, read_quarantined
from zync.verify import verify
from zync.yaml import load as load_config

_LINES = [
    {"topic": "a", "value": {"txn": 1, "x": "one"}},
    {"topic": "a", "value": {"txn": 2, "x": "2"}},
    {"topic": "a", "value": {"txn": 3, "x": "three"}},
    {"topic": "a", "value": "{broken"},
]


@pytest.fixture
def lake(tmp_path: Path, spark: Any) -> Path:
    """A lake where the rule failed on two transactions, and a record did not decode."""
    (tmp_path / "out.sql").write_text("SELECT seqno, txn, CAST(value:x::string AS INT) AS x FROM records")
    (tmp_path / "zync.yaml").write_text(
        "topics: {a: {id: value:txn}}\ntransactions: {done: count(*) = 1}\noutputs: [{topic: out, sql: out.sql}]\n"
    )
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in _LINES))
    load(str(tmp_path / "lake" / "raw"), [str(tmp_path / "in.jsonl")])
    sync(tmp_path, spark)
    return tmp_path


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
    assert (second["count"], second["ids"], second["places"]) == (1, ["a/0/3"], ["a/0/3"])
    seen = show(raw, staging, "1", load_config(lake / "zync.yaml"))
    assert (seen["state"], seen["rule"], seen["records"][0]["offset"]) == ("quarantined", "out.sql", 0)


def test_a_redriven_transaction_goes_out_once_after_the_rule_is_mended(lake: Path, spark: Any) -> None:
    raw, staging = str(lake / "lake" / "raw"), str(lake / "lake" / "staging")
    decide(raw, ["1"], "redrive", "try", who="ann")
    outcome = sync(lake, spark)
    assert (outcome.transactions, outcome.set_aside) == (0, {"quarantined": 1})
    assert [one["count"] for one in groups(raw, staging)] == [2, 1]  # it failed again
    (lake / "out.sql").write_text("SELECT seqno, txn, TRY_CAST(value:x::string AS INT) AS x FROM records")
    assert undecided(staging, [], "quarantined", among=("quarantined",)) == ["3", "a/0/3", "1"]
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
    assert sound(lake)
    decide(raw, ["a/0/3"], "drop", "a probe", who="ann")
    assert sync(lake, spark).set_aside == {"discarded": 1}
    assert groups(raw, staging) == []
    assert [row["reason"] for row in rows(lake / "lake" / "staging") if row["kind"] == "discarded"] == ["ann: a probe"]
    assert sound(lake)


def test_an_id_that_fails_again_after_it_was_done_is_in_quarantine_by_its_newest_records(tmp_path: Path) -> None:
    place = {"topic": "a", "partition": 0, "offset": 7}
    settled: list[Any] = [
        ("quarantined", 1, "x", None, "first"),
        ("quarantined", 2, None, place, "broken"),
        ("done", 3, "x", None, "ann: mended"),
        ("quarantined", 4, "x", None, "anew"),
        ("quarantined", 5, "x", None, "once more"),
        ("quarantined", 6, "y", None, "dropped"),
        ("discarded", 7, "y", None, None),
        ("quarantined", 8, "", None, "no name"),
        ("done", 9, "", None, None),
    ]
    names = ("kind", "seqno", "txn", "kafka", "reason")
    lines = [
        dict(zip(names, one, strict=True)) | {"records": [{"first": one[1], "last": one[1]}], "count": 0}
        for one in settled
    ]
    write_deltalake(tmp_path / "staging", pa.Table.from_pylist(lines, schema=STAGING_SCHEMA))
    found = quarantined_rows(DeltaTable(tmp_path / "staging"))
    assert {txn: (row["seqno"], row["reason"], row["records"][0]["first"]) for txn, row in found.items()} == {
        "a/0/7": (2, "broken", 2),
        "x": (5, "once more", 4),
        "": (8, "no name", 8),
    }
    records = read_quarantined(DeltaTable(tmp_path / "staging"), {"x", "y"})
    assert records == {"x": [{"first": 4, "last": 4}]}


def test_what_is_in_quarantine_is_not_decided_about_while_its_id_is_in_flight_again(lake: Path, spark: Any) -> None:
    transactions = "transactions: {done: count(*) = max(value:n::int), remember: 1}"
    config = (lake / "zync.yaml").read_text().replace("transactions: {done: count(*) = 1}", transactions)
    (lake / "zync.yaml").write_text(config)
    (lake / "in.jsonl").write_text('{"topic": "a", "value": {"txn": 1, "n": 2}}\n')
    load(str(lake / "lake" / "raw"), [str(lake / "in.jsonl")])
    assert sync(lake, spark).in_flight == 1
    staging = str(lake / "lake" / "staging")
    assert undecided(staging, ["3"], None, among=("quarantined",)) == ["3"]
    for ids in (["3", "1"], []):
        with pytest.raises(UsageError, match="transaction '1' is in quarantine, and in flight again"):
            undecided(staging, ids, "quarantined", among=("quarantined",))
    done = zync("dlq", "drop", "1", "--reason", "x", cwd=lake, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    decide(str(lake / "lake" / "raw"), ["1"], "drop", "decided before the sync that saw it in flight")
    outcome = sync(lake, spark)
    assert (outcome.in_flight, outcome.set_aside) == (1, {"ignored": 1})
    (lake / "in.jsonl").write_text('{"topic": "a", "value": {"txn": 1, "n": 2, "x": 7}}\n')
    load(str(lake / "lake" / "raw"), [str(lake / "in.jsonl")])
    assert sync(lake, spark).transactions == 1
    assert "1" in quarantined_rows(DeltaTable(staging))  # nobody decided about that one
    assert sound(lake)


def test_the_commands(lake: Path) -> None:
    listed = [json.loads(line) for line in zync("dlq", "list", "--json", cwd=lake).stdout.splitlines()]
    assert [one["count"] for one in listed] == [2, 1]
    assert "rule out.sql" in zync("dlq", "show", "3", cwd=lake).stdout
    assert zync("dlq", "redrive", "2", "--reason", "x", cwd=lake, check=False).returncode == 2
    assert "or --all" in zync("dlq", "drop", "--reason", "x", cwd=lake, check=False).stderr
    said = zync("dlq", "drop", "--all", "--reason", "x", "--yes", "--json", cwd=lake).stdout
    assert json.loads(said) == {"decision": "drop", "transactions": ["1", "3", "a/0/3"]}
