"""Tables of many small files, to be maintained by tests."""

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tests.spark.conftest import Pipeline
from zync.operate.maintain import Maintained, maintain
from zync.operate.verify import verify

DAYS = 24 * 3600


def tidy(pipeline: Pipeline, table: str | Path, **options: Any) -> Maintained:
    return maintain(str(table), **{"compact": True, "vacuum": True, "retain": timedelta(days=7), **options})


def in_steps(pipeline: Pipeline, txn: Any, steps: int = 6, *, sync: bool = True) -> None:
    """Raw and staging in many small files; each step ends the transactions of the last and begins others."""

    def make() -> None:
        for step in range(steps):
            ends = [("b", txn(f"{step - 1}-{n}", 2, x=n)) for n in range(3) if step]
            pipeline.load(*ends, ("a", txn(step, 1, x=step)))
            pipeline.load(*(("a", txn(f"{step}-{n}", 2, x=n)) for n in range(3)))
            if sync:
                pipeline.sync()

    if sync and not Path(pipeline.raw).exists():
        pipeline.begin_with(f"{steps}-steps", make)
    else:
        make()


def assert_sound(pipeline: Pipeline) -> None:
    claims = verify(pipeline.raw, str(pipeline.staging), pipeline.config, every_version=True, kafka=False)
    assert not [one for one in claims if one.violations]


def files(table: str | Path) -> int:
    return len(DeltaTable(str(table)).file_uris())


def age(folder: Path, days: float) -> None:
    """Makes the files of a table that old, as far as their file system is asked."""
    then = time.time() - days * DAYS
    for path in folder.rglob("*.parquet"):
        os.utime(path, (then, then))
