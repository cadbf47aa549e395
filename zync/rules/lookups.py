"""Lookup tables: read once, pinned to the content that their digest names."""

import hashlib

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from zync.config.model import Lookup
from zync.errors import UsageError
from zync.lake.paths import locate
from zync.lake.table import existing_table
from zync.spark.errors import message_of
from zync.sql import name


def bind(spark: SparkSession, view: str, lookup: Lookup) -> str:
    """Makes the view of a lookup table and returns the digest of what it holds.

    CSV files have a header, and their columns' types are found by looking; JSON files are JSON Lines.
    """
    try:
        if lookup.delta:
            location = locate(lookup.delta, ".")
            version = existing_table(location, "whoever fills it").version()
            spark.read.format("delta").option("versionAsOf", version).load(location).createOrReplaceTempView(name(view))
            return f"version {version}"
        path = lookup.csv or lookup.json
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]  # type: ignore[union-attr]
        if lookup.csv:
            rows = spark.read.csv(f"file://{path}", header=True, inferSchema=True, enforceSchema=False)
        else:
            rows = spark.read.json(f"file://{path}")
    except (PySparkException, OSError) as error:
        msg = f"lookup {view!r} cannot be read: {message_of(error)}"
        raise UsageError(msg) from error
    rows.createOrReplaceTempView(name(view))
    return digest
