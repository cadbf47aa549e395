"""`zync demo`: shows on a real Kafka how disaggregated transactions land whole."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from zync.demo import bank, orders
from zync.errors import UsageError
from zync.kafka.dev_broker import DevKafka
from zync.resources import data_folder

What = Literal["bank", "postgres", "orders"]
_FILES = {"orders": ("zync.yaml", "etl", "consume-1.jsonl", "consume-2.jsonl"), "bank": ("zync.yaml", "etl")}
_COMMANDS = {
    "orders": ("cat raw", "cat staging", "status", 'query "SELECT kind, seqno, txn FROM staging"'),
    "bank": (
        "broker start --port {port}",
        "status",
        "snapshot",
        'query --consistent "SELECT sum(abalance) FROM accounts"',
        "txn list",
    ),
}


def demo(folder: Path, what: What, seconds: float, say: Callable[[str], None]) -> None:
    """Runs a demo.

    Args:
        folder: The folder to run it in, which stays, so that the user can look at the tables.
        what: `bank`, a simulated bank; `postgres`, a bank on a real database; or `orders`, two transactions, step by
            step.
        seconds: How long to watch the bank.
        say: Receives each line of output.

    Raises:
        UsageError: The folder exists, and is not that of an earlier demo.
        ZyncError: A process of the demo failed.
    """
    for name in ("ZYNC_LAKE", "ZYNC_CONFIG", "ZYNC_INSTANCE"):  # the demo's commands use its own folder
        os.environ.pop(name, None)
    demo_name = "orders" if what == "orders" else "bank"
    _copy(demo_name, folder)
    if demo_name == "orders":
        orders.play(folder, say)
    else:
        bank.play(folder, what, seconds, say)
    say(f"\nThe folder {folder} stays. To look around:")
    say(f"  cd {folder}")
    program = "zync" if shutil.which("zync") else Path(sys.executable).with_name("zync")
    port = str(DevKafka(folder.absolute() / ".zync" / "broker").servers()).rpartition(":")[2]
    for line in _COMMANDS[demo_name]:
        say(f"  {program} {line.format(port=port)}")


def _copy(demo_name: str, folder: Path) -> None:
    """Copies the demo's files into a new folder, or into that of an earlier demo."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / "zync.yaml").exists() or not (folder / ".zync" / "broker").exists():
            msg = f"{folder} is there already and is not a demo's: give another folder"
            raise UsageError(msg)
        DevKafka(folder.absolute() / ".zync" / "broker").stop()
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    source = data_folder("demo") / ("bank" if demo_name == "bank" else "")
    for name in _FILES[demo_name]:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name)
        else:
            shutil.copy(source / name, folder / name)
