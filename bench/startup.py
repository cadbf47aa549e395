"""How long the command line takes to answer, and a small sync from nothing beside a bare Spark session."""

import sys
from pathlib import Path

from bench.harness import ZYNC, Result, alternately, child, log
from zync.resources import data_folder

ROUNDS = 5
COLD_ROUNDS = 3

_BARE_SPARK = """
import sys
from pyspark.sql import SparkSession
from zync import java
found = ",".join(map(str, java.fetch(java.DELTA)))
spark = (SparkSession.builder.master("local[2]").config("spark.jars", found)
    .config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog").getOrCreate())
spark.range(10).write.format("delta").save(sys.argv[1])
"""


def run(folder: Path) -> list[Result]:
    """`zync --help`, and `zync sync` of the demo's first records by a session that writes one small table."""
    help_seconds = [child(*ZYNC, "--help").seconds for _ in range(ROUNDS)]
    demo = data_folder("demo")

    def sync(number: int) -> float:
        lake = folder / f"lake-{number}"
        child(*ZYNC, "load", "raw", demo / "consume-1.jsonl", "--lake", lake, cwd=folder)
        where = ["--lake", str(lake), "--config", str(demo / "zync.yaml")]
        return child(*ZYNC, "sync", "raw", "staging", *where, cwd=folder).seconds

    def bare(number: int) -> float:
        return child(sys.executable, "-c", _BARE_SPARK, folder / f"bare-{number}", cwd=folder).seconds

    cold, spark = alternately(COLD_ROUNDS, sync, bare)
    log(f"--help {min(help_seconds):.2f} s, cold sync {min(cold):.1f} s, bare Spark {min(spark):.1f} s")
    return [
        Result("`zync --help`", min(help_seconds), "s", 0.3, details={"seconds": help_seconds}),
        Result("`zync sync` of a few records, cold", min(cold), "s", details={"seconds": cold}),
        Result(
            "the same by a bare Spark session with one Delta write",
            min(cold) / min(spark),
            "×",
            details={"spark_seconds": spark},
        ),
    ]
