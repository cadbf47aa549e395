"""A pipeline in a folder: records in, syncs, rows out."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import rows
from tests.sizes import as_large
from zync.config.model import Config, OutputRule, Topic, Transactions
from zync.raw.jsonl import load
from zync.sync.outcome import Outcome
from zync.sync.syncer import Syncer

COUNTED = "count(*) = max(value:n::int)"


class Pipeline:
    """A config with topics a and b by `value:txn`, one rule, and a lake of its own."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder, self.spark = folder, spark
        self.config = Config(
            lake=str(folder / "lake"),
            topics={"a": Topic("value:txn"), "b": Topic("value:txn")},
            transactions=Transactions(done=COUNTED),
        )
        self.rules(out="SELECT seqno, record_seqno AS _order, value:x::int AS x FROM records")

    def rules(self, **texts: str) -> None:
        made = []
        for name, text in texts.items():
            path = self.folder / f"{name}.sql"
            path.write_text(text)
            made.append(OutputRule(name, path))
        self.change(outputs=tuple(made))

    def change(self, **fields: Any) -> None:
        self.config = replace(self.config, **fields)

    @property
    def raw(self) -> str:
        return str(self.folder / "lake" / "raw")

    @property
    def staging(self) -> Path:
        return self.folder / "lake" / "staging"

    def load(self, *records: tuple[str, Any]) -> None:
        path = self.folder / "in.jsonl"
        path.write_text("".join(json.dumps({"topic": topic, "value": value}) + "\n" for topic, value in records))
        load(self.raw, [str(path)])

    def begin_with(self, name: str, make: Callable[[], None]) -> None:
        """Has the lake that `make` makes: a copy, where a test of this worker made the one of that name before."""
        made = self.folder.parent / f"made-{name}"
        if made.exists():
            shutil.copytree(made, self.config.lake)
        else:
            make()
            shutil.copytree(self.config.lake, made)

    def sync(self) -> Outcome:
        """One sync, by a process that knows nothing yet."""
        return Syncer(self.config, self.raw, str(self.staging), self.spark).sync()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in rows(self.staging) if row["kind"] == kind]

    def values(self, topic: str = "out") -> list[Any]:
        """Values of the output rows of a topic, in order of offset."""
        found = sorted(
            (r for r in self.of("output") if r["kafka"]["topic"] == topic), key=lambda r: r["kafka"]["offset"]
        )
        assert [row["kafka"]["offset"] for row in found] == list(range(len(found)))
        return [row["value"] and json.loads(row["value"]) for row in found]

    def outcomes(self, topic: str = "out") -> dict[int, Any]:
        """Of each transaction, by its seqno, the value of its last row in that topic, or why it is in quarantine.

        A transaction of one record has that one's seqno: 1 is the first that was loaded.
        """
        made = [row for row in self.of("output") if row["kafka"]["topic"] == topic]
        return {
            **{row["seqno"]: row["value"] and json.loads(row["value"]) for row in made},
            **{row["seqno"]: row["reason"] for row in self.of("quarantined")},
        }


_KILLED = """\
import os, sys
from datetime import timedelta
from deltalake import DeltaTable
from zync.operate.maintain import Trimming, maintain
commit = DeltaTable.create_write_transaction
def killed(*args, **more):
    if sys.argv[2] == "after":
        commit(*args, **more)
    os.kill(os.getpid(), 9)
DeltaTable.create_write_transaction = killed
trimming = Trimming(timedelta(0), (), 10) if sys.argv[3] == "trim" else None
maintain(sys.argv[1], compact=not trimming, vacuum=False, trimming=trimming)
"""


def maintain_and_die(table: str, when: str, what: str) -> None:
    """Trims or compacts a table in a process that is killed just before or after its commit."""
    done = subprocess.run([sys.executable, "-c", _KILLED, table, when, what], check=False)
    assert done.returncode == -9


@pytest.fixture
def pipeline(tmp_path: Path, spark: Any) -> Pipeline:
    return Pipeline(tmp_path, spark)


@pytest.fixture(scope="session")
def txn() -> Callable[..., dict[str, Any]]:
    """A record's value: transaction, how many records it has, and anything else."""
    return lambda txn, n=1, **more: {"txn": txn, "n": n, **more}


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sync is done as a large one is."""
    as_large(monkeypatch)
