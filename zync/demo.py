"""`zync demo`: a real Kafka, disaggregated transactions, and how they land whole."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from zync.devkafka import DevKafka
from zync.errors import UsageError, ZyncError
from zync.places import data_folder

_FILES = ("zync.yaml", "etl", "consume-1.jsonl", "consume-2.jsonl")


def demo(folder: Path, say: Callable[[str], None]) -> None:
    """Runs the demo in `folder`, which stays for looking around; `say` gets every line."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / "consume-1.jsonl").exists():
            msg = f"{folder} is there already and is not a demo's: give another folder"
            raise UsageError(msg)
        DevKafka(folder.absolute() / ".zync" / "broker").stop()
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for name in _FILES:
        source = data_folder("demo") / name
        if source.is_dir():
            shutil.copytree(source, folder / name)
        else:
            shutil.copy(source, folder / name)
    broker = DevKafka(folder.absolute() / ".zync" / "broker")
    say("Starting a real Kafka (the first time, its jars are fetched) ...")
    servers = broker.start()
    try:
        _play(folder, servers, say)
    finally:
        broker.stop()
    say(f"\nThe folder {folder} stays. To look around:")
    say(f"  cd {folder}")
    program = "zync" if shutil.which("zync") else Path(sys.executable).with_name("zync")
    for line in ("cat raw", "cat staging", "status", 'query "SELECT kind, seqno, txn FROM staging"'):
        say(f"  {program} {line}")


def _play(folder: Path, servers: str, say: Callable[[str], None]) -> None:
    say("\nTwo orders, 10000 and 10001, come on topic `order`; what was ordered comes on topic `menu`, at other times.")
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic("order", 1, 1), NewTopic("menu", 1, 1)]).values():
        made.result(20)
    _produce(folder / "consume-1.jsonl", servers, say)
    for topic in ("order", "menu"):  # one after the other, so that it goes the same way each time
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
    shown = " ".join(arguments)
    say(f"\n$ zync {shown}")
    extra = ["--bootstrap-servers", servers] if arguments[0] == "sync-from" else []
    command = [sys.executable, "-m", "zync", *arguments, *extra]
    environment = {key: value for key, value in os.environ.items() if key not in ("ZYNC_LAKE", "ZYNC_CONFIG")}
    done = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, check=False)  # noqa: S603 - zync
    for line in (done.stderr + done.stdout).splitlines():
        say(line)
    if done.returncode:
        msg = f"zync {shown} failed with exit code {done.returncode}"
        raise ZyncError(msg)
