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
from zync.spark.errors import message_of, spark_errors
from zync.spark.frames import from_rows
from zync.sql import name
from zync.text import strict_json

Kind = Literal["csv", "json"]

_ATTEMPTS = 5
"""How many times a file is read that changes during the read."""


class _ChangedError(Exception):
    """The file changed after its digest was computed."""


class _LineError(Exception):
    """A line of the file is not a single JSON value, as the standard has it."""


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

    A Delta table is pinned to its version. CSV and JSON files are read into memory: Spark would read them lazily, once
    for each plan that uses them, and a file replaced meanwhile would give rows of both contents to the same sync.
    CSV files have a header, and their columns' types are inferred; JSON files are JSON Lines.

    Args:
        spark: The session.
        view: The view's name.
        lookup: The lookup's entry in the config.

    Raises:
        UsageError: The lookup cannot be read, a line is malformed or has another number of columns than the header, or
            the file keeps changing.
    """
    unreadable: tuple[type[Exception], ...] = (*spark_errors(), OSError, _LineError)
    try:
        if lookup.delta:
            location = locate(lookup.delta, ".")
            version = newest_version(view, location)
            spark.read.format("delta").option("versionAsOf", version).load(location).createOrReplaceTempView(name(view))
            return f"version {version}"
        kind: Kind = "csv" if lookup.csv else "json"
        path = cast("Path", lookup.csv or lookup.json)
        for _ in range(_ATTEMPTS):
            digest = _digest(path)
            try:
                schema, rows = _contents(spark, path, kind, digest)
            except _ChangedError:
                continue
            from_rows(spark, rows, schema).createOrReplaceTempView(name(view))
            return digest
    except unreadable as error:
        msg = f"lookup {view!r} cannot be read: {message_of(error)}"
        raise UsageError(msg) from error
    msg = f"lookup {view!r} cannot be read: {path} changed each of {_ATTEMPTS} times that it was read"
    raise UsageError(msg)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


@lru_cache(16)
def _contents(spark: SparkSession, path: Path, kind: Kind, digest: str) -> tuple[StructType, pa.Table]:
    """Returns the schema and the rows of a lookup's file; cached by digest for later syncs.

    Raises:
        _ChangedError: The content no longer has that digest.
        _LineError: A line of JSON Lines is not a single value: Spark would read the first of several.
    """
    if kind == "csv":
        rows = spark.read.csv(f"file://{path}", header=True, inferSchema=True, enforceSchema=False, mode="FAILFAST")
    else:
        _check_lines(path)
        rows = spark.read.json(f"file://{path}", mode="FAILFAST")
    schema, table = rows.schema, rows.toArrow()
    if _digest(path) != digest:
        raise _ChangedError
    return schema, table


def _check_lines(path: Path) -> None:
    """Raises _LineError for the first line that is not a single JSON value."""
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            if line.strip():
                strict_json(line)
        except ValueError as error:
            msg = f"{path}:{number}: not one JSON value: {error}"
            raise _LineError(msg) from error
