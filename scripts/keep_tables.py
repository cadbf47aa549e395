"""Keeps the tables that this zync makes, for tests/spark/test_kept_tables.py: `python scripts/keep_tables.py 1.2.3`.

Each release keeps raw, staging and delivered tables in a folder with its number. Every later zync goes on with them.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KEPT = Path(__file__).parents[1] / "tests" / "data" / "kept"
COMMANDS = (
    "load raw first.jsonl",
    "sync raw staging",
    "sync-to tables staging --until-caught-up",
    "load raw second.jsonl",
    "txn release released --reason kept",
    "sync raw staging",
    "sync-to tables staging --until-caught-up",
)


def main(version: str) -> None:
    """Runs the commands in a folder with the kept pipeline, and copies its lake, without locks and checksums."""
    env = {**os.environ, "LOGNAME": "operator"}  # who releases a transaction
    with tempfile.TemporaryDirectory() as folder:
        for path in ("zync.yaml", "first.jsonl", "second.jsonl"):
            shutil.copy(KEPT / path, folder)
        shutil.copytree(KEPT / "etl", Path(folder) / "etl")
        for command in COMMANDS:
            subprocess.run([sys.executable, "-m", "zync", *command.split()], cwd=folder, env=env, check=True)  # noqa: S603
        shutil.copytree(Path(folder) / "lake", KEPT / version, ignore=shutil.ignore_patterns(".*", "*.crc"))
        for entry in (KEPT / version).rglob("*.json"):  # a table's first entry tells where it was made
            entry.write_text(entry.read_text().replace(folder, ""))


if __name__ == "__main__":
    main(*sys.argv[1:])
