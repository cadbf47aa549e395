"""What decoding and identifying records costs, beside Spark's own functions on the same records, warm.

Without a `schema:` beside `try_parse_json` with the same paths; with one beside `from_json` with the same schema.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.harness import Result, alternately, log, values
from bench.pipeline import Raw, config
from zync.config.model import Topic
from zync.lake.files import data_files
from zync.lake.table import existing_table
from zync.spark.frames import read_parquet
from zync.spark.session import session
from zync.spark.sizing import Sizing, tune
from zync.transactions.decode import RAW_COLUMNS, Decoder
from zync.transactions.done import take_apart

COUNT = 400_000
ROUNDS = 8
_WARM = 12
"""The first rounds, in which the JVM compiles, and which do not count."""
_SCHEMA = (
    "txn BIGINT, n INT, op STRING, table STRING, row STRUCT<id: INT, owner: STRING, branch: STRING, "
    "balance: DECIMAL(12, 2), currency: STRING, changed: TIMESTAMP>"
)
_DONE = "count(*) = max(value:n::int)"
_PARSED = "try_parse_json(CAST(value AS STRING)) AS parsed"
_PATHS = ("*", "try_variant_get(parsed, '$.txn', 'string')", "try_variant_get(parsed, '$.n', 'int')")
_STRUCT = f"from_json(CAST(value AS STRING), '{_SCHEMA}')"


def run(folder: Path) -> list[Result]:
    """Seconds of decoding by seconds of Spark's own function, each the best of some rounds."""
    spark = session("local[2]")
    tune(spark, {}, Sizing(COUNT))
    raw = Raw(folder / "raw")
    raw.append(values(COUNT))
    files = [file.uri for file in data_files(existing_table(raw.location, "this benchmark"), "seqno")]
    rows = read_parquet(spark, files, RAW_COLUMNS)
    plain, typed = Topic("value:txn"), Topic("value:txn", schema=_SCHEMA)
    works = {
        "JSON": lambda: _decoded(spark, folder, rows, plain),
        "try_parse_json": lambda: rows.selectExpr("*", _PARSED).selectExpr(*_PATHS),
        "JSON with a schema": lambda: _decoded(spark, folder, rows, typed),
        "from_json": lambda: rows.selectExpr("*", _STRUCT),
    }
    seconds = alternately(_WARM + ROUNDS, *map(_timed, works.values()))
    best = {name: min(rounds[_WARM:]) for name, rounds in zip(works, seconds, strict=True)}
    for name, fastest in best.items():
        log(f"{name}: {COUNT / fastest:,.0f} records/s")
    details = {"records per second": {name: COUNT / fastest for name, fastest in best.items()}}
    return [
        Result("decoding JSON by try_parse_json", best["JSON"] / best["try_parse_json"], "×", 1.5, details=details),
        Result("decoding to a schema by from_json", best["JSON with a schema"] / best["from_json"], "×", 1.5),
    ]


def _decoded(spark: SparkSession, folder: Path, rows: DataFrame, topic: Topic) -> DataFrame:
    pipeline = replace(config(folder), topics={"t": topic})
    return Decoder(spark, pipeline, take_apart(spark, _DONE)).decode(rows)


def _timed(work: Callable[[], DataFrame]) -> Callable[[int], float]:
    def seconds(_: int) -> float:
        frame = work()
        started = time.monotonic()
        frame.write.format("noop").mode("overwrite").save()
        return time.monotonic() - started

    return seconds
