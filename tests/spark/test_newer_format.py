"""Commands that work by Spark stop, too, where a newer zync changed the format of a table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.other_versions import UNKNOWN, VERSIONS, go_on_from, upgrade
from zync.errors import FormatError
from zync.lake.table import open_table

COMMANDS = [
    ("raw", "sync raw staging"),
    ("raw", "replay raw --into again"),
    ("raw", "check"),
    ("raw", "check --data raw"),
    ("raw", "query SELECT"),
    ("staging", "sync raw staging"),
    ("staging", "sync-to tables staging --until-caught-up"),
    ("staging", "diff staging staging"),
    ("staging", "query SELECT"),
    ("tables/_snapshots", "sync-to tables staging --until-caught-up"),
    ("tables/_snapshots", "query --consistent SELECT"),
]


@pytest.mark.parametrize(("table", "command"), COMMANDS)
def test_a_command_names_the_version_to_install_and_writes_nothing(
    tmp_path: Path, table: str, command: str, warm: Callable[..., Any]
) -> None:
    folder = go_on_from(VERSIONS[0], tmp_path)
    upgrade(folder / "lake" / table)
    for file in (folder / "lake" / table).rglob("*.parquet"):  # who reads rows now ends with another error
        file.unlink()
    before = files_of(folder / "lake")
    words = [word if word != "SELECT" else "SELECT 1" for word in command.split()]
    done = warm(*words, cwd=folder, check=False)
    assert f"lake/{table} has format {UNKNOWN}" in done.stderr
    assert done.stderr.strip().endswith("install zync 99.1.0 or newer")
    assert done.returncode == FormatError.exit_code
    assert files_of(folder / "lake") == before


def files_of(lake: Path) -> set[Path]:
    """All files of the lake but the locks."""
    return {path for path in lake.rglob("*") if path.suffix != ".lock"}


def test_another_engine_keeps_the_format(tmp_path: Path, spark: Any) -> None:
    raw = go_on_from(VERSIONS[0], tmp_path) / "lake" / "raw"
    upgrade(raw)
    table = f"delta.`{raw}`"
    spark.sql(f"OPTIMIZE {table}")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 60 days')")
    spark.sql(f"COMMENT ON TABLE {table} IS 'ours'")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN (more STRING)")
    with pytest.raises(FormatError, match=f"has format {UNKNOWN}"):
        open_table(str(raw))
