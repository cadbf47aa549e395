"""The plain Spark stream of bench/path.py, in a process of its own: from a Kafka topic into a typed Delta table.

`python -m bench.plain_stream SERVERS TOPIC append|upsert FOLDER` writes FOLDER/table until it is ended, and prints the
number of records so far after each micro-batch.
"""

import os
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame

from bench.harness import scratch_environment
from bench.sync_from_spark import KAFKA_SOURCE
from bench.sync_to_tables import TYPE
from zync import java
from zync.spark.session import session

VALUE = f"txn BIGINT, n INT, op STRING, table STRING, row STRUCT<{TYPE.replace(' ', ': ').replace(',: ', ', ')}>"


def main(servers: str, topic: str, way: str, folder: str) -> None:
    """Streams the topic into the table; with `upsert` a row for each id, the newest."""
    scratch_environment()
    jars = os.pathsep.join(str(jar) for jar in (*java.fetch(java.DELTA), *java.fetch(KAFKA_SOURCE)))
    spark = session("local[2]", {"spark.jars": jars.replace(os.pathsep, ","), "spark.driver.extraClassPath": jars})
    table = Path(folder) / "table"
    spark.sql(f"CREATE TABLE delta.`{table}` ({TYPE}) USING DELTA")

    def merge(batch: DataFrame, _number: int) -> None:
        batch.createOrReplaceTempView("batch")
        newest = "SELECT v.row.* FROM (SELECT max_by(v, at) AS v FROM batch GROUP BY v.row.id)"
        batch.sparkSession.sql(
            f"MERGE INTO delta.`{table}` t USING ({newest}) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    def append(batch: DataFrame, _number: int) -> None:
        batch.selectExpr("v.row.*").write.format("delta").mode("append").save(str(table))

    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    rows = source.option("startingOffsets", "earliest").load()
    rows = rows.selectExpr(f"from_json(CAST(value AS STRING), '{VALUE}') AS v", "struct(timestamp, offset) AS at")
    writer = rows.writeStream.foreachBatch(merge if way == "upsert" else append)
    query = writer.option("checkpointLocation", str(Path(folder) / "checkpoint")).start()
    printed = 0
    while query.isActive:
        so_far = sum(batch["numInputRows"] for batch in query.recentProgress)
        if so_far > printed:
            printed = so_far
            print(so_far, flush=True)  # noqa: T201 - bench/path.py reads it
        time.sleep(0.1)
    query.awaitTermination()  # raises what ended it


if __name__ == "__main__":
    main(*sys.argv[1:])
