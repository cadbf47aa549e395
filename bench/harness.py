"""What benchmarks share: results and their table, a broker with records in it, children and their peak memory."""

import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from zync.kafka.dev_broker import DevKafka

ZYNC = [sys.executable, "-m", "zync"]
_MIB = 1024

RECORDS = 1_000_000


@dataclass(frozen=True)
class Result:
    """One figure. `goal` is what it should be at most or, where `more` is better, at least; None: none was set."""

    what: str
    value: float
    unit: str
    goal: float | None = None
    more: bool = False
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Whether the goal is reached; true where there is none."""
        return self.goal is None or (self.value >= self.goal if self.more else self.value <= self.goal)


def table(results: Iterable[tuple[str, Result]]) -> str:
    """The results as a Markdown table."""
    lines = ["| benchmark | what | measured | goal | |", "|---|---|---|---|---|"]
    for benchmark, one in results:
        goal = "" if one.goal is None else f"{'≥' if one.more else '≤'} {one.goal:g} {one.unit}"
        met = "" if one.goal is None else "met" if one.met else "missed"
        lines.append(f"| {benchmark} | {one.what} | {one.value:.3g} {one.unit} | {goal} | {met} |")
    return "\n".join(lines)


def as_rows(results: Iterable[tuple[str, Result]]) -> list[dict[str, Any]]:
    """The results with all their details, as results.json has them."""
    return [{"benchmark": name, **asdict(one), "met": one.met} for name, one in results]


@contextlib.contextmanager
def broker() -> Iterator[str]:
    """The `bootstrap.servers` of a new Kafka that ends with this."""
    with tempfile.TemporaryDirectory(prefix="zync-bench-") as folder:
        kafka = DevKafka(Path(folder) / "broker")
        try:
            yield kafka.start()
        finally:
            kafka.stop()


def topic(servers: str, name: str, partitions: int = 1) -> None:
    """Makes a topic."""
    admin = AdminClient({"bootstrap.servers": servers})  # kept: its futures end with it
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(20)


def values(count: int, per_transaction: int = 4) -> Iterator[bytes]:
    """JSON records of about 200 bytes: transactions of `per_transaction`, some dozens of them interleaved."""
    chance = random.Random(7)
    window = 64 * per_transaction
    for start in range(0, count, window):
        slots = [start // per_transaction + at // per_transaction for at in range(min(window, count - start))]
        chance.shuffle(slots)
        for at, txn in enumerate(slots, start):
            account, cents = chance.randrange(100_000), chance.randrange(10_000_000)
            yield (
                f'{{"txn":{txn},"n":{per_transaction},"op":"u","table":"accounts",'
                f'"row":{{"id":{account},"owner":"customer {account:06}","branch":"branch office {account % 317}",'
                f'"balance":{cents // 100}.{cents % 100:02},"currency":"EUR",'
                f'"changed":"2026-03-{1 + at % 28:02}T{at // 3600 % 24:02}:{at // 60 % 60:02}:{at % 60:02}Z"}}}}'
            ).encode()


def produce(servers: str, name: str, records: Iterable[bytes], partitions: int = 1) -> None:
    """Sends the records to the partitions in turn."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 20,
            "batch.num.messages": 10_000,
            "queue.buffering.max.kbytes": 262_144,
        }
    )
    for number, value in enumerate(records):
        while True:
            try:
                producer.produce(name, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        msg = f"records for {name} did not reach Kafka"
        raise RuntimeError(msg)


@dataclass(frozen=True)
class Child:
    """A process that ran to its end: what it printed, how long it took, and its peak resident memory."""

    out: str
    seconds: float
    peak_mb: float

    @property
    def json(self) -> dict[str, Any]:
        """The last line that it printed."""
        return json.loads(self.out.strip().splitlines()[-1])  # type: ignore[no-any-return]


def child(*command: str | Path, cwd: Path | None = None) -> Child:
    """Runs a command; RuntimeError with what it said if it fails.

    Peak memory is the kernel's high-water mark of the process alone, looked at until it ends: what `wait4`
    tells would count the parent's memory at the fork as well.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        list(map(str, command)), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    peak = [0]
    watcher = threading.Thread(target=_watch, args=(process.pid, peak), daemon=True)
    watcher.start()
    out, err = process.communicate()
    seconds = time.monotonic() - started
    if process.returncode:
        msg = f"{' '.join(map(str, command))} exited {process.returncode}: {err or out}"
        raise RuntimeError(msg)
    return Child(out, seconds, peak[0] / _MIB)


def _watch(pid: int, peak: list[int]) -> None:
    with contextlib.suppress(OSError):
        while True:
            status = Path(f"/proc/{pid}/status").read_text()
            found = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
            if not found:
                return
            peak[0] = found[0]
            time.sleep(0.02)


def alternately(rounds: int, *each: Callable[[int], float]) -> list[list[float]]:
    """What each of them gives in `rounds` rounds, one beside the other, so that a busy machine is busy for all."""
    found: list[list[float]] = [[] for _ in each]
    for number in range(rounds):
        for index, one in enumerate(each):
            found[index].append(one(number))
    return found


def median(found: Iterable[float]) -> float:
    """The middle one."""
    return statistics.median(found)


def log(text: str) -> None:
    """A line for whoever watches."""
    sys.stderr.write(f"bench: {text}\n")
    sys.stderr.flush()


def scratch_environment() -> None:
    """Keeps Spark on this machine's own address, whatever its network is."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


@contextlib.contextmanager
def answering(answers: Mapping[str, Any]) -> Iterator[str]:
    """The URL of a schema registry that has those answers ("GET /path": JSON): asking it is not what is measured."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802 - the library's name
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.dumps(answers[f"{self.command} {self.path}"]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the library's name

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = HTTPServer(("localhost", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://localhost:{server.server_address[1]}"
    server.shutdown()
