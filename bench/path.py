"""The whole path, from Kafka to a typed Delta table, beside one plain Spark stream; appended, and upserted by key.

The plain one (bench/plain_stream.py) reads the same topic, takes the values apart by `from_json` with the same types,
and appends them, or merges the newest row of each key. It keeps no raw, assembles no transactions, and does not see one
that is torn apart. zync does, as three commands one after the other, or as `zync run`.

Cold: a million records that are there before the processes start. Then they are stopped (SIGSTOP), a million more are
produced, and they go on; and so again. Warm: the last of these millions, as the JVM compiles during those before it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from deltalake import DeltaTable

from bench.harness import ZYNC, Result, broker, child, log, produce, topic, values
from bench.plain_stream import VALUE
from zync.deliver.tables import snapshots
from zync.lake.table import open_table
from zync.staging.bookkeeping import read_cursor

RECORDS = 999_936
"""A million, and whole windows of `values`, so that no transaction goes on in the next million."""
MILLIONS = 4
PARTITIONS = 4
GOALS = {"append": 1.3, "upsert": 1.0}
CORES = 2
_PATIENCE = 1_200.0
_CONFIG = """\
lake: lake
topics: {{{topic}: {{as: t, id: "value:txn::string", schema: "{schema}"}}}}
transactions: {{done: "count(*) = max(value:n::int)"}}
outputs: [{{topic: rows, sql: rows.sql{key}}}]
deliver: {{tables: {{rows: {{apply: {way}}}}}}}
"""


def run(folder: Path) -> list[Result]:
    """Returns for both ways zync's seconds by the plain stream's, cold and warm, rows/s and core, and peak memory."""
    results: list[Result] = []
    with broker() as servers:
        for way, goal in GOALS.items():
            commands = _commands(_begun(folder, servers, way, "commands"), servers)
            zync = _running(_begun(folder, servers, way, "run"), servers, way, _ZyncRun)
            plain = _running(_begun(folder, servers, way, "plain"), servers, way, _PlainStream)
            details = {"commands": commands, "zync": zync, "plain": plain}
            log(f"{way}: {json.dumps(details)}")
            for how, ratio, ratio_goal in (
                ("three commands, cold, by one plain stream, cold", commands["cold"] / plain["cold"], goal),
                ("zync run, cold, by that", zync["cold"] / plain["cold"], goal),
                ("zync run, warm, by the plain stream, warm", zync["warm"] / plain["warm"], goal),
            ):
                results.append(Result(f"{way} {RECORDS:,} records: {how}", ratio, "×", ratio_goal, details=details))
            for who, found in (("zync run", zync), ("the plain stream", plain)):
                rate = RECORDS / found["warm"] / CORES
                results.append(Result(f"{way}: records/s and core of {who}, warm", rate, "/s"))
                results.append(Result(f"{way}: peak memory of {who}, JVMs and Python", found["peak_mb"], "MB"))
    return results


def _begun(folder: Path, servers: str, way: str, name: str) -> Path:
    """Returns a folder with a config, whose topic of that folder's name has the first records."""
    place = folder / f"{way}-{name}"
    place.mkdir()
    topic(servers, place.name, PARTITIONS)
    produce(servers, place.name, _million(0), PARTITIONS)
    key = ", key: [id]" if way == "upsert" else ""
    (place / "zync.yaml").write_text(_CONFIG.format(topic=place.name, schema=VALUE, key=key, way=way))
    (place / "rows.sql").write_text("SELECT seqno, value.row.* FROM t\n")
    return place


def _commands(place: Path, servers: str) -> dict[str, Any]:
    """Returns the seconds of the three commands, each in a process of its own."""
    seconds = {
        command[0]: child(*ZYNC, *command, cwd=place).seconds
        for command in (
            ["sync-from", "kafka", "raw", "--until-caught-up", "--bootstrap-servers", servers],
            ["sync", "raw", "staging"],
            ["sync-to", "tables", "staging", "--until-caught-up"],
        )
    }
    _check(place / "lake" / "tables" / "rows", place.name)
    return {"cold": sum(seconds.values()), **seconds}


def _running(place: Path, servers: str, way: str, start: Callable[..., "_Running"]) -> dict[str, Any]:
    """Returns seconds, cold and warm, and the peak memory of the processes that `start` starts."""
    begin = time.monotonic()
    seconds = []
    with (place / "out.log").open("w") as out, start(place, servers, way, out) as running:
        seconds.append(running.wait_for(RECORDS) - begin)
        for number in range(1, MILLIONS):
            running.signal(signal.SIGSTOP)
            produce(servers, place.name, _million(number), PARTITIONS)
            begin = time.monotonic()
            running.signal(signal.SIGCONT)
            seconds.append(running.wait_for((number + 1) * RECORDS) - begin)
        peak = running.peak_mb()
    _check(running.table, place.name)
    return {"cold": seconds[0], "warm": seconds[-1], "seconds": seconds, "peak_mb": peak}


def _million(number: int) -> Iterator[bytes]:
    return islice(values(MILLIONS * RECORDS), number * RECORDS, (number + 1) * RECORDS)


class _Running(ABC):
    """A process, and those that come from it, that write `table` until this context ends."""

    def __init__(self, command: list[str], place: Path, out: TextIO, table: Path) -> None:
        self.place, self.table = place, table
        self._process = subprocess.Popen(command, cwd=place, stdout=out, stderr=out)

    def __enter__(self) -> "_Running":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)

    @abstractmethod
    def taken(self) -> int:
        """Returns the number of records that the table has."""

    def wait_for(self, records: int) -> float:
        """Waits until the table has so many records, and returns the time (of `time.monotonic`)."""
        until = time.monotonic() + _PATIENCE
        while self.taken() < records:
            if self._process.poll() is not None or time.monotonic() > until:
                msg = f"it did not take {records:,} records: {(self.place / 'out.log').read_text()[-2000:]}"
                raise RuntimeError(msg)
            time.sleep(0.2)
        return time.monotonic()

    def signal(self, number: int) -> None:
        """Sends a signal to all its processes."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def pids(self) -> list[int]:
        """Returns the ids of the process, and of all that came from it."""
        pids = [self._process.pid]
        for pid in pids:
            for children in Path(f"/proc/{pid}").glob("task/*/children"):
                with suppress(OSError):
                    pids += map(int, children.read_text().split())
        return pids

    def peak_mb(self) -> float:
        """Returns the sum of the processes' peak resident memory."""
        statuses = (Path(f"/proc/{pid}/status").read_text() for pid in self.pids())
        lines = (line for status in statuses for line in status.splitlines() if line.startswith("VmHWM:"))
        return sum(int(line.split()[1]) for line in lines) / 1024


class _ZyncRun(_Running):
    def __init__(self, place: Path, servers: str, _way: str, out: TextIO) -> None:
        command = [*ZYNC, "run", "--bootstrap-servers", servers]
        super().__init__(command, place, out, place / "lake" / "tables" / "rows")

    def taken(self) -> int:
        staging = open_table(str(self.place / "lake" / "staging"))
        snapshot = snapshots.newest(str(self.place / "lake" / "tables" / snapshots.NAME))
        if staging is None or snapshot is None:
            return 0
        cursor = read_cursor(staging)
        return cursor.seqno if snapshot.sync == cursor.sync else 0


class _PlainStream(_Running):
    def __init__(self, place: Path, servers: str, way: str, out: TextIO) -> None:
        command = [sys.executable, "-m", "bench.plain_stream", servers, place.name, way, str(place)]
        super().__init__(command, Path.cwd(), out, place / "table")
        self._out = place / "out.log"

    def taken(self) -> int:
        counts = [line for line in self._out.read_text().splitlines() if line.isdigit()]
        return int(counts[-1]) if counts else 0


def _check(table: Path, name: str) -> None:
    """Raises RuntimeError unless the table has as many rows as the records make."""
    rows = DeltaTable(table).to_pyarrow_dataset().count_rows()
    counts = {RECORDS, MILLIONS * RECORDS} if name.startswith("append") else range(1, 100_001)
    if rows not in counts:
        msg = f"{name}: the table has {rows:,} rows"
        raise RuntimeError(msg)
