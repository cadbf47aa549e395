"""Staging made anew is the same; what differs is shown; what is damaged is found."""

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.conftest import rows, zync
from tests.spark.conftest import Pipeline
from zync.config.model import Config, Limits, OutputRule
from zync.errors import UsageError
from zync.lake.files import DataFile, dataset
from zync.operate.diff import diff
from zync.operate.replay import replay
from zync.operate.verify import verify
from zync.project.load import load as load_config
from zync.raw.jsonl import load
from zync.resources import data_folder
from zync.sync.syncer import Syncer


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Path:
    """The demo's lake, in two syncs."""
    demo = tmp_path_factory.mktemp("made") / "demo"
    shutil.copytree(data_folder("demo"), demo)
    config = load_config(demo / "zync.yaml")
    lake = Path(config.lake)
    syncer = Syncer(config, str(lake / "raw"), str(lake / "staging"), spark)
    for part in ("consume-1.jsonl", "consume-2.jsonl"):
        load(str(lake / "raw"), [str(demo / part)])
        syncer.sync()
    return lake


@pytest.fixture
def lake(demo: Path, made: Path) -> Path:
    """A copy of that lake, in the demo's folder."""
    return Path(shutil.copytree(made, load_config(demo / "zync.yaml").lake))


def outputs(staging: Path) -> list[Any]:
    return [(r["seqno"], r["kafka"], r["key"], r["value"]) for r in rows(staging) if r["kind"] == "output"]


def test_a_replay_gives_the_same_and_another_rule_shows_as_a_difference(lake: Path, demo: Path, spark: Any) -> None:
    config = load_config(demo / "zync.yaml")
    raw, staging, other = str(lake / "raw"), str(lake / "staging"), str(lake / "other")
    done = replay(spark, config, raw, other, None, staging, lambda _: None)
    assert (done.transactions, done.different) == (2, [])
    assert outputs(lake / "other") == outputs(lake / "staging")
    assert diff(spark, staging, other, 5) == {}
    with pytest.raises(UsageError, match="is there already"):
        replay(spark, config, raw, other, None, staging, lambda _: None)
    rule = demo / "etl" / "order.sql"
    rule.write_text(rule.read_text().replace("AS total", "* 2 AS total"))
    changed = replay(spark, load_config(demo / "zync.yaml"), raw, str(lake / "third"), 3, staging, lambda _: None)
    assert (changed.head, changed.different) == (3, ["rules"])
    assert replay(spark, load_config(demo / "zync.yaml"), raw, str(lake / "compared with none")).different == []
    found = diff(spark, staging, str(lake / "third"), 5)["order"]
    assert (found.changed, found.only_in_one, found.only_in_other) == (1, 1, 0)
    assert found.examples[0]["columns"] == {"total": [3.98, 7.96]}


def test_a_replay_sets_aside_at_once_what_many_syncs_did_and_tells_rules_that_were_others_meanwhile(
    pipeline: Pipeline, txn: Any
) -> None:
    pipeline.change(limits=Limits(max_quarantined=1))
    for number, factor in ((1, 1), (2, 1), (3, 2), (4, 1)):
        pipeline.rules(out=f"SELECT seqno, {factor} * (100 DIV value:x::int) AS x FROM records")  # noqa: S608
        pipeline.load(("a", txn(number, x=0)), ("a", txn(f"good {number}", x=1)))
        assert pipeline.sync().set_aside == {"quarantined": 1}
    staging, other = str(pipeline.staging), str(pipeline.folder / "other")
    done = replay(pipeline.spark, pipeline.config, pipeline.raw, other, None, staging, lambda _: None)
    assert (done.syncs, done.transactions, done.different) == (1, 4, ["rules"])
    assert len([row for row in rows(Path(other)) if row["kind"] == "quarantined"]) == 4


def test_a_difference_is_shown_to_the_last_digit(pipeline: Pipeline, txn: Any) -> None:
    pipeline.load(("a", txn(1)))
    pipeline.rules(out="SELECT seqno, 0.12345678901234567890 AS x, 1.5 AS y FROM records")
    pipeline.sync()
    pipeline.rules(out="SELECT seqno, 0.12345678901234567891 AS x, 1.5 AS y FROM records")
    staging, other = str(pipeline.staging), str(pipeline.folder / "other")
    replay(pipeline.spark, pipeline.config, pipeline.raw, other, None, staging, lambda _: None)
    (found,) = diff(pipeline.spark, staging, other, 5)["out"].examples
    assert found["columns"] == {"x": ["0.12345678901234567890", "0.12345678901234567891"]}


def broken(lake: Path, demo: Path) -> list[str]:
    """The claims that do not hold."""
    config = load_config(demo / "zync.yaml")
    claims = verify(str(lake / "raw"), str(lake / "staging"), config, every_version=True, kafka=False)
    return [claim.text.split(": ")[-1] for claim in claims if claim.violations]


def files(table: Path, kind: str | None) -> list[Path]:
    """The newest version's data files; with a row of that kind, if one is named."""
    paths = [Path(uri.removeprefix("file://")) for uri in DeltaTable(str(table)).file_uris()]
    return [path for path in paths if kind is None or kind in pq.read_table(path)["kind"].to_pylist()]


def rewrite(table: Path, kind: str | None, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    for path in files(table, kind):
        there = pq.read_table(path)
        pq.write_table(pa.Table.from_pylist(change(there.to_pylist()), schema=there.schema), path)


def forward(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "seqno": row["seqno"] + 2 * (row["kind"] == "cursor" and row["sync"] == 1)} for row in found]


def without(kind: str) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    return lambda found: [row for row in found if row["kind"] != kind]


def doubled(found: list[dict[str, Any]], kind: str = "output") -> list[dict[str, Any]]:
    return found + [row for row in found if row.get("kind") in (None, kind)]


DAMAGE: dict[str, Any] = {
    "a file of raw is gone": ("raw", None, None, "files of"),
    "a file of staging is gone": ("staging", "output", None, "files of"),
    "a row of raw is there twice": ("raw", None, doubled, "seqno rises by one"),
    "a row of raw is lost": ("raw", None, lambda found: found[1:], "files of"),
    "a lost output row": ("staging", "output", without("output"), "output offsets"),
    "a doubled output row": ("staging", "output", doubled, "output offsets"),
    "a doubled row in flight": ("staging", "pending", partial(doubled, kind="pending"), "each sync says"),
    "a lost transaction": ("staging", "done", without("done"), "each record up to head"),
    "a cursor set forward": ("staging", None, forward, "the cursor is before"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_verify_finds_damage(lake: Path, demo: Path, name: str) -> None:
    table, kind, change, claim = DAMAGE[name]
    assert broken(lake, demo) == []
    if change is None:
        files(lake / table, kind)[0].unlink()
    else:
        rewrite(lake / table, kind, change)
    assert any(text.startswith(claim) for text in broken(lake, demo)), broken(lake, demo)


@pytest.mark.parametrize("number", range(2))
def test_verify_names_a_file_that_was_cut_short(lake: Path, demo: Path, number: int) -> None:
    path = sorted(files(lake / "staging", "cursor"))[number]
    os.truncate(path, 100)
    assert "a table's file is gone or damaged: " in zync("status", cwd=demo, check=False).stderr
    assert any(text.startswith("files of") for text in broken(lake, demo))


def test_a_digest_is_of_what_a_python_rule_says_and_not_of_where_it_is(tmp_path: Path) -> None:
    digests = []
    for folder, text in (("a", "1"), ("b", "1"), ("b", "2")):
        path = tmp_path / folder / "rule.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        digests.append(Config(outputs=(OutputRule(topic="t", python=f"{path}:f"),)).digests["rules"])
    assert digests[0] == digests[1] != digests[2]


def test_verify_finds_that_raw_is_another_or_shorter(lake: Path, demo: Path) -> None:
    newest = max((lake / "raw" / "_delta_log").glob("*.json"))
    newest.rename(lake / "entry")
    assert any(text.startswith("staging was made of this raw") for text in broken(lake, demo))
    (lake / "entry").rename(newest)
    assert broken(lake, demo) == []
    shutil.rmtree(lake / "raw")
    load(str(lake / "raw"), [str(demo / f"consume-{n}.jsonl") for n in (1, 2)])
    assert broken(lake, demo) == ["staging was made of this raw, which has all records that it knows of"]


def test_verify_reads_each_file_once_for_all_versions(lake: Path, demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(table: DeltaTable, files: list[DataFile], schema: pa.Schema) -> Any:
        read.extend(file.path for file in files)
        return dataset(table, files, schema)

    monkeypatch.setattr("zync.operate.verify.claim.dataset", noted)
    assert broken(lake, demo) == []
    there = [str(path.relative_to(lake / name)) for name in ("raw", "staging") for path in files(lake / name, None)]
    assert sorted(read) == sorted(there)


def test_the_commands_exit_1_on_a_difference_or_damage(lake: Path, demo: Path, warm: Any) -> None:
    assert json.loads(warm("verify", "--every-version", "--json", cwd=demo).stdout)["ok"] is True
    shutil.copytree(lake / "staging", lake / "copy")
    assert json.loads(warm("diff", "staging", "copy", "--json", cwd=demo).stdout) == {"same": True, "topics": {}}
    warm("replay", "raw", "--into", "short", "--to-seqno", "3", cwd=demo)
    done = warm("diff", "staging", "short", cwd=demo, check=False)
    assert done.returncode == 1
    assert "order: 0 changed, 1 only in the first, 0 only in the second" in done.stdout
    files(lake / "raw", None)[0].unlink()
    assert warm("verify", cwd=demo, check=False).returncode == 1
