"""What `zync maintain` makes of a raw that got a commit each five seconds for a day, and the time to read it."""

import time
from pathlib import Path

from bench.harness import ZYNC, Result, child, log, values
from bench.pipeline import Raw, config
from zync.lake.files import data_files
from zync.lake.table import existing_table
from zync.spark.session import session
from zync.sync.syncer import Syncer

COMMITS = 24 * 3600 // 5
ROWS = 20
ROUNDS = 3


def run(folder: Path) -> list[Result]:
    """Seconds of a whole sync, and of `zync cat` of the last ten records, after by before."""
    raw = Raw(folder / "raw")
    records = values(COMMITS * ROWS)
    for number in range(COMMITS):
        raw.append(next(records) for _ in range(ROWS))
        if number % 2000 == 1999:
            log(f"commit {number + 1:,}")
    spark, pipeline = session("local[2]"), config(folder)
    warm = Raw(folder / "warm")
    warm.append(values(20_000))

    def sync(name: str) -> float:
        started = time.monotonic()
        Syncer(pipeline, raw.location, str(folder / name), spark).sync()
        return time.monotonic() - started

    def cat() -> float:
        since = str(COMMITS * ROWS - 9)
        return min(child(*ZYNC, "cat", raw.location, "--since", since).seconds for _ in range(ROUNDS))

    for number in range(2):
        Syncer(pipeline, warm.location, str(folder / f"warm-{number}"), spark).sync()
    before = sync("before"), cat()
    tidied = child(*ZYNC, "maintain", raw.location, "--json")
    files = data_files(existing_table(raw.location, "this benchmark"), "seqno")
    after = sync("after"), cat()
    spark.stop()
    log(f"{COMMITS:,} files: sync {before[0]:.1f} s, cat {before[1]:.2f} s; then {after[0]:.1f} s, {after[1]:.2f} s")
    details = {"before": before, "after": after, "bytes": [file.size for file in files]}
    return [
        Result(f"files of a day of {COMMITS:,} commits, after", len(files), "files", details=details),
        Result("seconds of maintaining it", tidied.seconds, "s"),
        Result(f"a sync of its {COMMITS * ROWS:,} records, after by before", after[0] / before[0], "×"),
        Result("zync cat of its last ten records, after by before", after[1] / before[1], "×"),
    ]
