"""Reads lookup tables, once per sync, pinned to the content that their digest names."""

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Literal, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from zync.config.model import Lookup
from zync.errors import UsageError
from zync.lake.paths import locate
from zync.lake.table import open_table
from zync.spark.causes import causes
from zync.spark.errors import message_of, spark_errors
from zync.spark.frames import from_rows
from zync.sql import name
from zync.text import strict_json

Kind = Literal["csv", "json"]


class _LineError(Exception):
    """A line of the file is not UTF-8, not a single JSON value as the standard has it, or of other columns."""


def newest_version(view: str, location: str) -> int:
    """Returns the newest version of a lookup's Delta table.

    Args:
        view: The lookup's name, for the error's text.
        location: The table's path or URI.

    Raises:
        UsageError: The location has no table, or holds something else.
    """
    where = f"lookup {view!r} (lookups.{view}.delta in zync.yaml)"
    try:
        table = open_table(location)
    except UsageError as error:
        msg = f"{where}: {error}"
        raise UsageError(msg) from error
    if table is None:
        msg = f"{where}: there is no Delta table at {location}: name one that is there, or have it made first"
        raise UsageError(msg)
    return table.version()


def bind(spark: SparkSession, view: str, lookup: Lookup) -> str:
    """Creates the temporary view of a lookup table and returns the digest of its content.

    A Delta table is pinned to its version. CSV and JSON files are read here, and once: Spark would read them lazily,
    once for each plan that uses them, so that a file replaced meanwhile would give rows of both contents to the same
    sync; and on executors, which do not have them. CSV files have a header, and their columns' types are inferred; JSON
    files are JSON Lines.

    Args:
        spark: The session.
        view: The view's name.
        lookup: The lookup's entry in the config.

    Raises:
        UsageError: The lookup cannot be read, or a line is malformed or has another number of columns than the header.
    """
    unreadable: tuple[type[Exception], ...] = (*spark_errors(), OSError, _LineError)
    try:
        if lookup.delta:
            location = locate(lookup.delta, ".")
            version = newest_version(view, location)
            spark.read.format("delta").option("versionAsOf", version).load(location).createOrReplaceTempView(name(view))
            return f"version {version}"
        path = cast("Path", lookup.csv or lookup.json)
        content = path.read_bytes()
        schema, rows = _parsed(spark, path, "csv" if lookup.csv else "json", content)
    except unreadable as error:
        msg = f"lookup {view!r} cannot be read: {message_of(error)}"
        raise UsageError(msg) from error
    from_rows(spark, rows, schema).createOrReplaceTempView(name(view))
    return hashlib.sha256(content).hexdigest()[:16]


@lru_cache(16)
def _parsed(spark: SparkSession, path: Path, kind: Kind, content: bytes) -> tuple[StructType, pa.Table]:
    """Returns the schema and the rows of a lookup's file; cached by content for later syncs.

    Raises:
        _LineError: A line is not UTF-8, or has another number of columns than the header; or of JSON Lines not a single
            value: Spark would read the first of several.
    """
    lines = [_text(path, number, line) for number, line in enumerate(content.splitlines(), 1)]
    text = from_rows(spark, [(line,) for line in lines], "value string")
    if kind == "csv":
        rows = spark.read.csv(text, header=True, inferSchema=True, enforceSchema=False, mode="FAILFAST")
    else:
        _check_lines(path, lines)
        rows = spark.read.json(text, mode="FAILFAST")
    try:
        return rows.schema, rows.toArrow()
    except spark_errors() as error:
        records = [cause.message for cause in causes(error) if cause.condition == "MALFORMED_CSV_RECORD"]
        malformed = [number for number, line in enumerate(lines, 1) if records and f": {line} " in records[0]]
        if not malformed:
            raise
        number = malformed[-1]
        msg = f"{path}:{number}: another number of columns than the header has: {lines[number - 1]}"
        raise _LineError(msg) from error


def _text(path: Path, number: int, line: bytes) -> str:
    """Decodes a line, the first without a byte order mark."""
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        msg = f"{path}:{number}: not UTF-8: {error.reason}"
        raise _LineError(msg) from error


def _check_lines(path: Path, lines: list[str]) -> None:
    """Raises _LineError for the first line that is not a single JSON value."""
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                strict_json(line)
        except ValueError as error:
            msg = f"{path}:{number}: not one JSON value: {error}"
            raise _LineError(msg) from error
