"""Claims: statements about a table that must hold, with the violations of each."""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from zync.lake.files import DataFile, dataset
from zync.lake.table import first_line

_MAX_VIOLATIONS = 20
"""Violations of a claim that are listed; further ones are only counted."""


@dataclass
class Claim:
    """A statement that must hold.

    Attributes:
        text: the statement.
        count: number of items that were checked.
        violations: the first places where the statement does not hold.
        more: number of further violations.
    """

    text: str
    count: int = 0
    violations: list[str] = field(default_factory=list)
    more: int = 0

    def add_violation(self, text: str) -> None:
        """Adds a place where the statement does not hold."""
        if len(self.violations) < _MAX_VIOLATIONS:
            self.violations.append(text)
        else:
            self.more += 1


def files_claim(table: DeltaTable) -> Claim:
    """Returns the claim about a table's files that `check_file` checks."""
    return Claim(f"files of {table.table_uri} are there, with the rows and bounds that the log says")


def read_file(table: DeltaTable, file: DataFile, columns: list[str], schema: pa.Schema) -> Any:
    """Returns the rows of a file; if it cannot be read, the error's text as a str."""
    try:
        return dataset(table, [file], schema).to_table(columns=columns)
    except (OSError, pa.ArrowException) as error:
        return f"{type(error).__name__}: {first_line(error)}"


def check_file(claim: Claim, file: DataFile, rows: Any) -> bool:
    """Checks that a file has the rows and bounds in the log, and returns whether it could be read.

    Args:
        claim: the claim that violations are added to.
        file: the file as the log has it.
        rows: the result of `read_file`.
    """
    claim.count += 1
    if isinstance(rows, str):
        claim.add_violation(f"{file.path}: {rows}")
        return False
    bounds = pc.min_max(rows["seqno"]).as_py()
    expected, actual = (file.rows, file.lowest, file.highest), (len(rows), bounds["min"], bounds["max"])
    if expected != actual:
        claim.add_violation(f"{file.path}: log {expected}, file {actual}")
    return True
