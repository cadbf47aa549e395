"""This zync goes on with the tables that earlier ones left, at another place, and syncs them to what those would."""

import json
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.conftest import rows, zync
from tests.other_versions import OTHER, VERSIONS, environment, go_on_from
from zync.deliver.tables import snapshots

Run = Callable[..., Any]

KEPT_OUTPUT = [
    (3, 0, '{"item":"tea","left":7}'),
    (3, 1, '{"item":"rice","left":1}'),
    (9, 2, None),
    (11, 3, '{"item":"oats","left":4}'),
]
LATER_OUTPUT = [
    (13, 4, '{"item":"milk","left":5}'),
    (13, 5, '{"item":"tea","left":6}'),
    (13, 6, '{"item":"eggs","left":12}'),
    (14, 7, '{"item":"rice","left":3}'),
]


def output(staging: Path) -> list[tuple[int, int, str | None]]:
    """The output rows in order, each with its transaction's seqno, its offset and its value."""
    found = [(r["seqno"], r["kafka"]["offset"], r["value"]) for r in rows(staging) if r["kind"] == "output"]
    return sorted(found, key=lambda row: row[1])


def stock(lake: Path) -> dict[str, int]:
    """What the newest snapshot of the delivered table has left of each item."""
    version = snapshots.at(str(lake / "tables" / "_snapshots"), None).versions["stock"]
    table = DeltaTable(lake / "tables" / "stock", version).to_pyarrow_table().to_pylist()
    assert len({row["item"] for row in table}) == len(table)
    return {row["item"]: row["left"] for row in table}


def test_the_newest_release_keeps_its_tables() -> None:
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    assert tomllib.loads(pyproject.read_text())["project"]["version"] in VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_what_an_earlier_zync_left_is_read(tmp_path: Path, version: str) -> None:
    folder = go_on_from(version, tmp_path)
    raw = [json.loads(line) for line in zync("cat", "raw", cwd=folder).stdout.splitlines()]
    assert [row["seqno"] for row in raw] == list(range(1, 12))
    staging = [json.loads(line) for line in zync("cat", "staging", cwd=folder).stdout.splitlines()]
    assert Counter(row["kind"] for row in staging) == {
        "output": 4, "done": 2, "pending": 3, "released": 1, "quarantined": 2, "late": 1, "ignored": 1, "cursor": 2
    }  # fmt: skip
    status = json.loads(zync("status", "--json", cwd=folder).stdout)
    assert (status["raw"]["head"], status["staging"]["head"], status["staging"]["cursor"]) == (11, 11, 1)
    assert status["in_flight"]["oldest"]["txn"] == "in flight"
    assert status["delivered"]["tables"] == {"sync": 2, "behind": 0}
    listed = [json.loads(line) for line in zync("txn", "list", "--json", cwd=folder).stdout.splitlines()]
    in_flight = {transaction["txn"]: transaction["count"] for transaction in listed if not transaction["reason"]}
    assert in_flight == {"in flight": 2}
    assert output(folder / "lake" / "staging") == KEPT_OUTPUT
    assert stock(folder / "lake") == {"tea": 7, "oats": 4}
    zync("verify", "--every-version", cwd=folder)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_an_earlier_zync_left_is_gone_on_with(tmp_path: Path, version: str, warm: Run) -> None:
    folder = go_on_from(version, tmp_path)
    lake = folder / "lake"
    warm("load", "raw", "third.jsonl", cwd=folder)
    warm("sync", "raw", "staging", cwd=folder)
    assert output(lake / "staging") == KEPT_OUTPUT + LATER_OUTPUT
    late = [row["records"] for row in rows(lake / "staging") if row["kind"] == "late"]
    assert late == [[{"first": 7, "last": 7}], [{"first": 12, "last": 12}]]
    warm("sync-to", "tables", "staging", "--until-caught-up", cwd=folder)
    assert stock(lake) == {"tea": 6, "oats": 4, "milk": 5, "eggs": 12, "rice": 3}
    warm("replay", "raw", "--into", "again", cwd=folder)
    assert output(lake / "again") == KEPT_OUTPUT + LATER_OUTPUT
    for table in ("raw", "staging"):
        zync("maintain", table, "--compact", cwd=folder)
    zync("verify", cwd=folder)


@pytest.mark.skipif(not OTHER, reason="ZYNC_TEST_OTHER names no checkout of another version")
@pytest.mark.parametrize("version", VERSIONS)
def test_another_zync_goes_on_with_them(tmp_path: Path, version: str) -> None:
    """A rollback, where that zync is older than the one that left them."""
    folder = go_on_from(version, tmp_path)
    env = environment(Path(OTHER), folder)
    for command in (
        "load raw third.jsonl",
        "sync raw staging",
        "sync-to tables staging --until-caught-up",
        "replay raw --into again",
        "maintain raw --compact",
        "maintain staging --compact",
        "verify --every-version",
    ):
        zync(*command.split(), cwd=folder, env=env)
    lake = folder / "lake"
    assert output(lake / "staging") == output(lake / "again") == KEPT_OUTPUT + LATER_OUTPUT
    assert stock(lake) == {"tea": 6, "oats": 4, "milk": 5, "eggs": 12, "rice": 3}
    zync("verify", cwd=folder)
