"""sync-from beside Spark's own batch Kafka source, which writes the same columns to a Delta table.

Spark is warm: its session runs, and the first write is not counted. sync-from is a new process each time, timed from
its first record to its last commit. Spark is spared the numbering: its seqno has gaps.
"""

import os
import time
from pathlib import Path

from bench.harness import RECORDS, ZYNC, Result, alternately, broker, child, log, produce, topic, values
from zync import java
from zync.spark.session import session

PARTITIONS = 4
ROUNDS = 6

KAFKA_SOURCE = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
_COLUMNS = (
    "monotonically_increasing_id() AS seqno",
    "struct(topic, partition, offset, timestamp) AS kafka",
    "current_timestamp() AS ingested",
    "key",
    "value",
    "headers",
)


def run(folder: Path) -> list[Result]:
    """The ratio of the two best rates."""
    found = [str(jar) for jar in (*java.fetch(java.DELTA), *java.fetch(KAFKA_SOURCE))]
    spark = session("local[2]", {"spark.jars": ",".join(found), "spark.driver.extraClassPath": os.pathsep.join(found)})
    with broker() as servers:
        topic(servers, "t", PARTITIONS)
        produce(servers, "t", values(RECORDS), PARTITIONS)

        def by_spark(number: int) -> float:
            started = time.monotonic()
            source = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "t")
            rows = source.option("includeHeaders", "true").load().selectExpr(*_COLUMNS)
            rows.write.format("delta").save(str(folder / f"spark-{number}"))
            return RECORDS / (time.monotonic() - started)

        def by_zync(number: int) -> float:
            command = [*ZYNC, "sync-from", "kafka", "raw", "--until-caught-up", "--json", "--topic", "t"]
            where = ["--bootstrap-servers", servers, "--lake", str(folder / f"lake-{number}")]
            return RECORDS / float(child(*command, *where, cwd=folder).json["busy"])

        by_spark(-1)
        zync, spark_rates = alternately(ROUNDS, by_zync, by_spark)
    spark.stop()
    log(f"sync-from {max(zync):,.0f}/s, Spark {max(spark_rates):,.0f}/s")
    details = {"sync_from_per_second": zync, "spark_per_second": spark_rates}
    return [Result("sync-from's rate by Spark's Kafka source's", max(zync) / max(spark_rates), "×", 3, True, details)]
