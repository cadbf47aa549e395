"""Reads lookup tables, once per sync, pinned to the content that their digest names."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from zync.config.model import Lookup
from zync.errors import UsageError
from zync.lake.paths import locate
from zync.lake.table import open_table
from zync.spark.causes import causes
from zync.spark.errors import message_of, spark_errors
from zync.spark.frames import from_rows
from zync.sql import name
from zync.text import strict_json


class _LineError(Exception):
    """A line of the file is not UTF-8, not a single JSON value as the standard has it, or has other columns."""


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
        digest, (schema, rows) = _contents(spark, lookup)
    except unreadable as error:
        msg = f"lookup {view!r} cannot be read: {message_of(error)}"
        raise UsageError(msg) from error
    from_rows(spark, rows, schema).createOrReplaceTempView(name(view))
    return digest


_Contents = tuple[StructType, pa.Table]
"""The schema of a file, and its rows."""
_last_read: dict[Lookup, tuple[str, _Contents]] = {}
"""The digest and the contents of this process's lookups when they were read last."""


def _contents(spark: SparkSession, lookup: Lookup) -> tuple[str, _Contents]:
    """Reads a lookup's file, and parses it unless it is as it was when it was read last; returns its digest, too.

    Raises:
        _LineError: A line is not UTF-8, or has another number of columns than the header; or of JSON Lines not a single
            value: Spark would read the first of several.
    """
    path = cast("Path", lookup.csv or lookup.json)
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    if lookup not in _last_read or _last_read[lookup][0] != digest:
        lines = {number: _text(path, number, line) for number, line in enumerate(content.splitlines(), 1)}
        parse = _parse_csv if lookup.csv else _parse_json
        _last_read[lookup] = digest, parse(spark, path, lines)
    return _last_read[lookup]


def _parse_csv(spark: SparkSession, path: Path, lines: dict[int, str]) -> _Contents:
    """Parses lines of CSV by their numbers. The first that is not blank is the header.

    It goes to Spark by itself: of lines that are equal to it Spark would take each for a header, and leave it out.
    """
    (header, header_line), *body = [(number, line) for number, line in lines.items() if line.strip()] or [(1, "")]
    fields = spark.read.csv(_text_rows(spark, [header_line]), mode="FAILFAST").head() or ()
    names = [field or f"_c{number}" for number, field in enumerate(fields)]  # as Spark names a column without one
    if twice := [column for column, count in Counter(map(str.lower, names)).items() if count > 1]:
        msg = f"{path}:{header}: two columns have the name {twice[0]!r}"
        raise _LineError(msg)
    if not body:
        schema = StructType([StructField(column, StringType()) for column in names])
        return schema, pa.schema([(column, pa.string()) for column in names]).empty_table()
    rows = spark.read.csv(_text_rows(spark, [line for _, line in body]), inferSchema=True, mode="FAILFAST")
    if len(rows.columns) != len(names):  # Spark goes by the first of these lines
        raise _columns_error(path, *body[0])
    rows = rows.toDF(*names)
    try:
        return rows.schema, rows.toArrow()
    except spark_errors() as error:
        record = next((cause.message for cause in causes(error) if cause.condition == "MALFORMED_CSV_RECORD"), "")
        for number, line in body:
            if f"record: {line} SQLSTATE" in record:
                raise _columns_error(path, number, line) from error
        raise


def _columns_error(path: Path, number: int, line: str) -> _LineError:
    return _LineError(f"{path}:{number}: another number of columns than the header has: {line}")


def _parse_json(spark: SparkSession, path: Path, lines: dict[int, str]) -> _Contents:
    """Parses JSON Lines by their numbers."""
    for number, line in lines.items():
        try:
            if line.strip():
                strict_json(line)
        except ValueError as error:
            msg = f"{path}:{number}: not one JSON value: {error}"
            raise _LineError(msg) from error
    rows = spark.read.json(_text_rows(spark, [*lines.values()]), mode="FAILFAST")
    return rows.schema, rows.toArrow()


def _text_rows(spark: SparkSession, lines: list[str]) -> DataFrame:
    return from_rows(spark, [(line,) for line in lines], "value string")


def _text(path: Path, number: int, line: bytes) -> str:
    """Decodes a line, the first without a byte order mark."""
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        msg = f"{path}:{number}: not UTF-8: {error.reason}"
        raise _LineError(msg) from error
