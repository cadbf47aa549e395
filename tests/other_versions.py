"""Tables as another zync leaves them: those that releases kept in tests/data/kept, and those of a newer format."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from deltalake import DeltaTable

from zync.lake.table_format import FORMATS

KEPT = Path(__file__).parent / "data" / "kept"
VERSIONS = sorted(path.name for path in KEPT.iterdir() if (path / "raw").exists())
OTHER = os.environ.get("ZYNC_TEST_OTHER", "")
"""A checkout of another version of zync, whose package this environment can run."""
UNKNOWN = max(FORMATS) + 1
"""A format that begins with zync 99.1.0."""


def go_on_from(version: str, folder: Path) -> Path:
    """Copies the lake that this version left, and its pipeline, into a folder, which it returns."""
    shutil.copytree(KEPT / version, folder / "lake")
    shutil.copytree(KEPT / "etl", folder / "etl")
    for name in ("zync.yaml", "third.jsonl"):
        shutil.copy(KEPT / name, folder)
    return folder


def environment(checkout: Path, folder: Path) -> dict[str, str]:
    """The environment in which `python -m zync` runs the checkout's package in a folder."""
    variables = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-c", "import zync; print(zync.__path__[0])"]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).parent == checkout
    return variables


def upgrade(location: Path | str) -> None:
    """Does what a newer zync does that changes the table's format."""
    properties = {"zync.format": str(UNKNOWN), "zync.format_since": "99.1.0"}
    DeltaTable(str(location)).alter.set_table_properties(properties, raise_if_not_exists=False)
