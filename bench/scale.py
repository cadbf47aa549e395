"""Peak memory and time of a `zync sync`, by what the driver holds: records of a sync, ids remembered, and in flight.

Records are as small as can be, and each transaction has one or two: the worst for what is held for each of them.
ZYNC_BENCH_SCALE=RECORDS: of other sizes than those in docs/scale.md.
"""

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable

from bench.harness import ZYNC, Result, log
from bench.pipeline import Raw
from zync.lake.files import data_files
from zync.raw.table import ensure_raw

SIZES = tuple(int(size) for size in os.environ.get("ZYNC_BENCH_SCALE", "1000000,5000000").split(","))
FILES = 100_000
NEW = 70_000
"""Records of a sync beside what earlier ones left: as few as are handled as a large sync is."""

_CONFIG = """\
topics: {t: {id: "value:txn"}}
transactions: {done: "count(*) = max(value:n::int)", remember: 1000000000, expire_after: 1000d}
outputs: [{topic: out, sql: out.sql}]
"""
_RULE = "SELECT seqno, value:txn::bigint AS txn FROM t\n"


@dataclass(frozen=True)
class Peak:
    """What a sync took: the peak memory of Python and of its JVM, in MB, and the seconds of its stages."""

    python: float
    jvm: float
    seconds: float


def run(folder: Path) -> list[Result]:
    """Returns for each case and size the peak memory of Python and the JVM, and seconds."""
    results = []
    for size in SIZES:
        for name, measure in (("in one sync", _backlog), ("remembered", _remembered), ("in flight", _in_flight)):
            peak = measure(folder / f"{name.replace(' ', '-')}-{size}", size)
            what = f"{size:,} transactions {name}" + ("" if measure is _backlog else f", and {NEW:,} new records")
            log(f"{what}: {peak}")
            results += [
                Result(f"{what}: Python", peak.python, "MB"),
                Result(f"{what}: the JVM", peak.jvm, "MB"),
                Result(f"{what}: stages", peak.seconds, "s"),
            ]
    return [*results, Result(f"a data file of {FILES:,}", _bytes_of_file(folder / "files"), "B")]


def _backlog(folder: Path, size: int) -> Peak:
    """A sync of that many transactions of one record each."""
    config = f"{_CONFIG}limits: {{records_per_sync: {size}}}\n"
    return Lake(folder, config, _RULE).sync(_records(range(size), of=1))


def _remembered(folder: Path, size: int) -> Peak:
    """A sync beside that many transactions that earlier syncs settled, and whose ids are remembered."""
    lake = Lake(folder, _CONFIG, _RULE)
    lake.sync(_records(range(size), of=1))
    return lake.sync(_records(range(size, size + NEW), of=1))


def _in_flight(folder: Path, size: int) -> Peak:
    """A sync beside that many transactions in flight, some of which become whole."""
    lake = Lake(folder, _CONFIG, _RULE)
    lake.sync(_records(range(size), of=2))
    return lake.sync(_records(range(NEW), of=2))


def _bytes_of_file(folder: Path) -> float:
    """Returns the bytes of memory that this process takes for a data file of a table: its entry, and all about it."""
    ensure_raw(str(folder))
    entries = (
        {
            "path": f"part-{number:08d}-0123456789abcdef0123456789abcdef.zstd.parquet",
            "partitionValues": {},
            "size": 20_000,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps({"numRecords": 1, "minValues": {"seqno": number}, "maxValues": {"seqno": number}}),
        }
        for number in range(FILES)
    )
    version = DeltaTable(folder).version() + 1
    log_entry = folder / "_delta_log" / f"{version:020d}.json"
    log_entry.write_text("".join(json.dumps({"add": entry}) + "\n" for entry in entries))
    before = _resident_bytes()
    table = DeltaTable(folder)
    files = data_files(table, "seqno")
    return (_resident_bytes() - before) / len(files)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _records(ids: Iterable[int], of: int) -> Iterator[bytes]:
    return (b'{"txn":%d,"n":%d}' % (number, of) for number in ids)


class Lake:
    """A project with a raw that grows.

    Args:
        folder: Its folder, which is made.
        config: The text of its zync.yaml, whose rule is `out.sql`.
        rule: The text of that.
    """

    def __init__(self, folder: Path, config: str, rule: str) -> None:
        folder.mkdir()
        (folder / "zync.yaml").write_text(config)
        (folder / "out.sql").write_text(rule)
        self._folder, self._raw = folder, Raw(folder / "lake" / "raw")

    def sync(self, records: Iterator[bytes]) -> Peak:
        """Appends records to raw and syncs them in a process of its own, in several syncs where zync decides so.

        Raises:
            RuntimeError: The sync fails; what it said is the message.
        """
        self._raw.append(records)
        process = subprocess.Popen(
            [*ZYNC, "sync", "raw", "staging", "--json"], cwd=self._folder, stdout=subprocess.PIPE, text=True
        )
        peaks: dict[str, float] = {"python": 0, "java": 0}
        threading.Thread(target=_watch, args=(process.pid, peaks), daemon=True).start()
        out, _ = process.communicate()
        if process.returncode:
            msg = f"the sync exited {process.returncode}: {out}"
            raise RuntimeError(msg)
        return Peak(peaks["python"], peaks["java"], sum(json.loads(out.splitlines()[-1])["seconds"].values()))


def _watch(pid: int, peaks: dict[str, float]) -> None:
    """Keeps the peak resident memory of a process and of the JVM that it starts, by the kernel's high-water marks."""
    with suppress(OSError):
        while True:
            peaks["python"] = max(peaks["python"], _peak_mb(pid))
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                with suppress(OSError):
                    if "java" in Path(f"/proc/{child}/comm").read_text():
                        peaks["java"] = max(peaks["java"], _peak_mb(int(child)))
            time.sleep(0.05)


def _peak_mb(pid: int) -> float:
    peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(peak[1]) / 1024 if peak else 0.0
