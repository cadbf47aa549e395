"""Claims: what must hold, and where it does not; and that of files, which is made of each table."""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from zync.lake.files import DataFile, dataset
from zync.lake.table import first_line

_SHOWN = 20
"""Violations of one claim that are listed; more are counted."""


@dataclass
class Claim:
    """Something that must hold: of how many it was shown, and where it does not."""

    text: str
    count: int = 0
    violations: list[str] = field(default_factory=list)
    more: int = 0

    def broken(self, where: str) -> None:
        """Notes a place where it does not hold."""
        if len(self.violations) < _SHOWN:
            self.violations.append(where)
        else:
            self.more += 1


def files_of(table: DeltaTable) -> Claim:
    """The claim that `sound` is asked about, of that table."""
    return Claim(f"files of {table.table_uri} are there, with the rows and bounds that the log says")


def read_file(table: DeltaTable, file: DataFile, columns: list[str], schema: pa.Schema) -> Any:
    """The file's rows of those columns; a string that says why, where they cannot be read."""
    try:
        return dataset(table, [file.path], schema).to_table(columns=columns)
    except (OSError, pa.ArrowException) as error:
        return f"{type(error).__name__}: {first_line(error)}"


def sound(claim: Claim, file: DataFile, rows: Any) -> bool:
    """Whether the file could be read; `claim` notes that, and whether its rows and bounds are as the log says."""
    claim.count += 1
    if isinstance(rows, str):
        claim.broken(f"{file.path}: {rows}")
        return False
    bounds = pc.min_max(rows["seqno"]).as_py()
    said, found = (file.rows, file.lowest, file.highest), (len(rows), bounds["min"], bounds["max"])
    if said != found:
        claim.broken(f"{file.path}: log {said}, file {found}")
    return True
