"""sync-to tables beside what one would write in foreachBatch: the newest row of each key, by MERGE.

Both read the same files of staging, in turn, in one warm session; the plain one keeps no track of anything: no source
order across batches, no memory of what was deleted, no snapshot, no check of what others did. Both run on from batch
to batch, as a following sync-to and a stream do.
"""

import queue
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

from bench.harness import Result, log
from bench.staged import Staged
from zync.deliver.tables.batch import Batch
from zync.deliver.tables.delivery import sync_to_tables
from zync.lake.files import data_files
from zync.lake.table import open_table
from zync.project.load import load
from zync.spark.frames import read_parquet, spark_schema
from zync.spark.session import session
from zync.staging.table import STAGING_SCHEMA

ROWS, KEYS = 200_000, 500_000
SMALL_ROWS, SMALL_KEYS = 1_000, 50_000
WARM_UP, ROUNDS = 12, 5
"""Both go on getting faster for so many batches, as the JVM compiles them; a running delivery has had thousands."""
TYPE = "id INT, owner STRING, branch STRING, balance DECIMAL(12, 2), currency STRING, changed TIMESTAMP"
RULE = """SELECT seqno, value:id::int AS id, value:owner::string AS owner, value:branch::string AS branch,
value:balance::decimal(12, 2) AS balance, value:currency::string AS currency, value:changed::timestamp AS changed
FROM records"""


def run(folder: Path) -> list[Result]:
    """Seconds of large and of small batches by those of a plain MERGE of the same rows."""
    spark = session("local[2]")
    results = []
    for name, rows, keys, goal in (("large", ROWS, KEYS, 1.2), ("small", SMALL_ROWS, SMALL_KEYS, 1.0)):
        (folder / name).mkdir()
        seconds = _seconds(spark, folder / name, rows, keys)
        taken = {how: sum(found[WARM_UP:]) for how, found in seconds.items()}
        what = f"batches of {rows:,} rows into a table of up to {keys:,} by a plain MERGE of the same rows"
        results.append(Result(what, taken["zync"] / taken["plain"], "×", goal, details=seconds))
        results.append(Result(f"one batch of {rows:,} rows", taken["zync"] / ROUNDS, "s"))
    spark.stop()
    return results


def _seconds(spark: SparkSession, folder: Path, row_count: int, keys: int) -> dict[str, list[float]]:
    """Returns the seconds of each batch, of which the first ones fill the tables and warm the session."""
    (folder / "rows.sql").write_text(RULE)
    (folder / "zync.yaml").write_text(
        'topics: {in: {id: "value:txn"}}\noutputs: [{topic: rows, sql: rows.sql, key: [id]}]\n'
    )
    config, staged = load(folder / "zync.yaml"), Staged(folder / "lake" / "staging", keys)
    plain_table = str(folder / "plain")
    seconds: dict[str, list[float]] = {"zync": [], "plain": []}

    def plain(number: int) -> None:
        files = data_files(open_table(str(staged.location)) or staged.table, "sync", above=number - 1, upto=number)
        rows = read_parquet(spark, [one.uri for one in files], spark_schema(STAGING_SCHEMA)).where("kind = 'output'")
        rows.selectExpr(f"from_json(value, '{TYPE}') AS v", "kafka.offset AS at").createOrReplaceTempView("batch")
        newest = spark.sql("SELECT max_by(v, at) AS v FROM batch GROUP BY v.id").select("v.*")
        if number == 1:
            newest.write.format("delta").save(plain_table)
            return
        newest.createOrReplaceTempView("newest")
        spark.sql(
            f"MERGE INTO delta.`{plain_table}` t USING newest s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    batches, stop = queue.Queue[Batch](), threading.Event()
    tables = (str(staged.location), str(folder / "lake" / "tables"))
    ours = threading.Thread(target=lambda: sync_to_tables(spark, config, *tables, stop, batches.put))
    ours.start()
    for number in range(1, WARM_UP + ROUNDS + 1):
        staged.sync(row_count)
        seconds["zync"].append(batches.get(timeout=300).seconds)
        started = time.monotonic()
        plain(number)
        seconds["plain"].append(round(time.monotonic() - started, 2))
        log(", ".join(f"{how} {found[-1]:.1f} s" for how, found in seconds.items()))
    stop.set()
    ours.join()
    same = [
        spark.read.format("delta").load(path).selectExpr(f"sum(hash({', '.join(_columns())}))", "count(*)").collect()
        for path in (plain_table, str(folder / "lake" / "tables" / "rows"))
    ]
    if same[0] != same[1]:
        msg = f"the two tables are not the same: {same}"
        raise RuntimeError(msg)
    return seconds


def _columns() -> list[str]:
    return [one.split()[0] for one in TYPE.replace("(12, 2)", "").split(", ")]
