"""`zync demo --what orders`: two transactions whose records arrive at different times, step by step."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from zync.errors import ZyncError
from zync.kafka.dev_broker import DevKafka


def play(folder: Path, say: Callable[[str], None]) -> None:
    """Runs the demo of two orders in `folder`."""
    broker = DevKafka(folder.absolute() / ".zync" / "broker")
    say("Starting a real Kafka (the first time, its jars are fetched) ...")
    servers = broker.start()
    try:
        _play(folder, servers, say)
    finally:
        broker.stop()


def _play(folder: Path, servers: str, say: Callable[[str], None]) -> None:
    say("\nTwo orders, 10000 and 10001, come on topic `order`; what was ordered comes on topic `menu`, at other times.")
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic("order", 1, 1), NewTopic("menu", 1, 1)]).values():
        future.result(20)
    _produce(folder / "consume-1.jsonl", servers, say)
    for topic in ("order", "menu"):  # separate runs, so that each demo appends the records in the same order
        _run(folder, servers, say, "sync-from", "kafka", "raw", "--topic", topic, "--until-caught-up")
    _run(folder, servers, say, "sync", "raw", "staging")
    say("\nTransaction 10000 is whole, so it is there; of 10001 only half has come, so nothing of it is:")
    _run(folder, servers, say, "cat", "staging")
    say("\nThe rest of 10001 arrives:")
    _produce(folder / "consume-2.jsonl", servers, say)
    _run(folder, servers, say, "sync-from", "kafka", "raw", "--until-caught-up")
    _run(folder, servers, say, "sync", "raw", "staging")
    _run(folder, servers, say, "cat", "staging", "--kind", "output")
    say("\nEach transaction is there once, and whole; and the cursor says that nothing before it is open:")
    _run(folder, servers, say, "cat", "staging", "--kind", "cursor")


def _produce(path: Path, servers: str, say: Callable[[str], None]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        value = json.dumps(record["value"])
        producer.produce(record["kafka"]["topic"], value.encode())
        producer.flush(30)
        say(f"  -> {record['kafka']['topic']:5} {value}")


def _run(folder: Path, servers: str, say: Callable[[str], None], *arguments: str) -> None:
    command_line = " ".join(arguments)
    say(f"\n$ zync {command_line}")
    extra = ["--bootstrap-servers", servers] if arguments[0] == "sync-from" else []
    command = [sys.executable, "-m", "zync", *arguments, *extra]
    result = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)  # noqa: S603 - zync
    for line in (result.stderr + result.stdout).splitlines():
        say(line)
    if result.returncode:
        msg = f"zync {command_line} failed with exit code {result.returncode}"
        raise ZyncError(msg)
