"""`zync demo`: real Kafka, disaggregated transactions, and how they land whole."""

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
_LOOK = {
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
    """Runs the demo in `folder`, which stays for looking around; `say` gets every line.

    what: `bank`, a simulated one, watched for so many seconds; `postgres`, the same on a real database; or `orders`,
    two transactions, step by step.
    """
    for name in ("ZYNC_LAKE", "ZYNC_CONFIG", "ZYNC_INSTANCE"):  # what it starts is about its own folder
        os.environ.pop(name, None)
    which = "orders" if what == "orders" else "bank"
    _copy(which, folder)
    if which == "orders":
        orders.play(folder, say)
    else:
        bank.play(folder, what, seconds, say)
    say(f"\nThe folder {folder} stays. To look around:")
    say(f"  cd {folder}")
    program = "zync" if shutil.which("zync") else Path(sys.executable).with_name("zync")
    port = str(DevKafka(folder.absolute() / ".zync" / "broker").servers()).rpartition(":")[2]
    for line in _LOOK[which]:
        say(f"  {program} {line.format(port=port)}")


def _copy(which: str, folder: Path) -> None:
    """The demo's files, into a folder that is new or an earlier demo's."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / "zync.yaml").exists() or not (folder / ".zync" / "broker").exists():
            msg = f"{folder} is there already and is not a demo's: give another folder"
            raise UsageError(msg)
        DevKafka(folder.absolute() / ".zync" / "broker").stop()
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    source = data_folder("demo") / ("bank" if which == "bank" else "")
    for name in _FILES[which]:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name)
        else:
            shutil.copy(source / name, folder / name)
