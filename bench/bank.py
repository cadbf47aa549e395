"""A bank on PostgreSQL, by Debezium through a plain row-by-row pipeline, and through zync: how often is it seen broken?

The plain pipeline is what is usually built: a Spark structured stream for each topic, with a MERGE of the newest row of
each key in each micro-batch (history is appended). Each is looked at five times a second, while transfers go on.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable

from bench.harness import ZYNC, Result, broker, log
from bench.sync_from_spark import KAFKA_SOURCE
from zync import java
from zync.demo.bank import KEYS, SUMS, PostgresBank, consistent_sums
from zync.resources import data_folder
from zync.spark.session import session

SECONDS = 60.0
RATE = 50
"""Transfers a second."""
_EVERY = 0.2
_PATIENCE = 120.0
_COLUMNS = {
    "accounts": "aid INT, bid INT, abalance INT",
    "tellers": "tid INT, bid INT, tbalance INT",
    "branches": "bid INT, bbalance INT",
    "history": "tid INT, bid INT, aid INT, delta INT",
}
Sums = dict[str, int] | None


def run(folder: Path) -> list[Result]:
    """Of all looks the share, in percent, that saw different sums."""
    return [
        _shown("a plain row-by-row pipeline", None, *_through_rows(folder / "plain")),
        _shown("zync, at its newest snapshot", 0, *_through_zync(folder / "zync")),
    ]


def _shown(what: str, goal: float | None, looks: int, broken: int) -> Result:
    log(f"{what}: {broken} of {looks} looks broken")
    share = 100 * broken / looks
    return Result(f"looks at a broken bank: {what}", share, "%", goal, details={"looks": looks, "broken": broken})


def _watched(sums: Callable[[], Sums], bank: PostgresBank) -> tuple[int, int]:
    """How often it was looked at from when there is something to see, and how often the sums differed.

    RuntimeError where they are not the bank's in the end.
    """
    while not any((sums() or {}).values()):
        time.sleep(_EVERY)
    looks = broken = 0
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        looks, broken = looks + 1, broken + (len(set((sums() or {}).values())) > 1)
        time.sleep(_EVERY)
    bank.end()
    truth, until = bank.truth(), time.monotonic() + _PATIENCE
    while set((sums() or {}).values()) != {truth}:
        if time.monotonic() > until:
            msg = f"the bank says {truth}, and after {_PATIENCE:.0f} s without transfers its copy says {sums()}"
            raise RuntimeError(msg)
        time.sleep(_EVERY)
    return looks, broken


def _through_zync(folder: Path) -> tuple[int, int]:
    shutil.copytree(data_folder("demo") / "bank", folder)
    with broker() as servers:
        bank = PostgresBank(folder, servers, RATE)
        bank.start()
        command = [*ZYNC, "run", "--commit-every", "500ms", "--bootstrap-servers", servers]
        with (folder / "run.log").open("w") as out:
            running = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)
        try:
            return _watched(lambda: (consistent_sums(folder) or (None,))[0], bank)
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(120)
            bank.close()


def _through_rows(folder: Path) -> tuple[int, int]:
    found = [str(jar) for jar in (*java.fetch(java.DELTA), *java.fetch(KAFKA_SOURCE))]
    spark = session("local[2]", {"spark.jars": ",".join(found), "spark.driver.extraClassPath": os.pathsep.join(found)})
    for name, columns in _COLUMNS.items():
        spark.sql(f"CREATE TABLE delta.`{folder / name}` ({columns}) USING DELTA")
    with broker() as servers:
        bank = PostgresBank(folder, servers, RATE)
        bank.start()
        queries = []
        for name, columns in _COLUMNS.items():
            source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
            rows = (
                source.option("subscribe", f"bank.public.pgbench_{name}").option("startingOffsets", "earliest").load()
            )
            values = rows.selectExpr(
                f"from_json(CAST(value AS STRING), 'after STRUCT<{columns}>, source STRUCT<lsn: BIGINT>') AS v"
            )
            made = values.selectExpr("v.after.*", "v.source.lsn AS lsn")
            writer = made.writeStream.foreachBatch(partial(_write, name, folder / name))
            queries.append(writer.option("checkpointLocation", str(folder / f"{name}-checkpoint")).start())
        try:
            return _watched(partial(_sums, folder), bank)
        finally:
            for query in queries:
                query.stop()
            spark.stop()
            bank.close()


def _write(name: str, location: Path, rows: Any, _number: int) -> None:
    if name not in KEYS:
        rows.drop("lsn").write.format("delta").mode("append").save(str(location))
        return
    key = KEYS[name]
    newest = rows.groupBy(key).agg({"lsn": "max"}).withColumnRenamed("max(lsn)", "lsn").join(rows, [key, "lsn"])
    newest.drop("lsn").createOrReplaceTempView(f"{name}_changes")
    rows.sparkSession.sql(
        f"MERGE INTO delta.`{location}` t USING {name}_changes s ON t.{key} = s.{key} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def _sums(folder: Path) -> Sums:
    found = {}
    for name, column in SUMS.items():
        values = DeltaTable(folder / name).to_pyarrow_table(columns=[column])[column]
        found[name] = pc.sum(values).as_py() or 0
    return found
