"""What reassembling transactions costs: a sync beside the same decoding and the same rule over the same records.

The other one takes each record's own transaction id for `seqno`, so it is spared everything that zync does to make
transactions whole and to remember it; its output rows are numbered, written and committed by the same code.
"""

import time
import uuid
from pathlib import Path

from bench.harness import RECORDS, Result, alternately, log, values
from bench.pipeline import Raw, config
from zync.lake.files import data_files
from zync.lake.table import existing_table
from zync.rules.transform import transform
from zync.spark.frames import RowCache, read_parquet
from zync.spark.session import session
from zync.spark.sizing import Sizing
from zync.staging.commit import commit_files, write
from zync.staging.table import ensure_staging
from zync.sync.outcome import Outcome
from zync.sync.syncer import Syncer
from zync.transactions.decode import RAW_COLUMNS, Decoder
from zync.transactions.done import take_apart

ROUNDS = 10
WARM_UP = 100_000


def run(folder: Path) -> list[Result]:
    """Seconds of the one by seconds of the other, best of some rounds."""
    small, large, pipeline = Raw(folder / "small"), Raw(folder / "large"), config(folder)
    small.append(values(WARM_UP))
    large.append(values(RECORDS))
    spark = session("local[2]")
    outcomes: list[Outcome] = []

    def whole(number: int, raw: Raw = large) -> float:
        started = time.monotonic()
        outcomes.append(Syncer(pipeline, raw.location, str(folder / f"whole-{number}"), spark).sync())
        return time.monotonic() - started

    def plain(number: int, raw: Raw = large) -> float:
        started = time.monotonic()
        table = existing_table(raw.location, "this benchmark")
        files = data_files(table, "seqno")
        rows = read_parquet(spark, [one.uri for one in files], RAW_COLUMNS)
        decoded = Decoder(spark, pipeline, take_apart(spark, pipeline.transactions.done)).decode(rows)
        # Errors are looked at, but not in a filter, which Spark would push below the decoding and so do that twice.
        decoded = decoded.selectExpr(
            "CAST(coalesce(record_error, transaction_error, txn) AS BIGINT) AS seqno",
            "seqno AS record_seqno",
            *("txn", "topic", "kafka", "key", "value", "headers"),
        )
        with RowCache(spark) as row_cache:
            out, _ = transform(
                spark,
                decoded,
                pipeline,
                {},
                (),
                None,
                row_cache=row_cache,
                some_left_out=False,
                sizing=Sizing(sum(file.rows for file in files)),
                documents=False,
            )
            if out is None:
                raise AssertionError
            staging = ensure_staging(str(folder / f"plain-{number}"))
            write(out, staging, "sync-1", 1)
        commit_files(staging, "sync-1", 1, uuid.uuid4().hex, rows=sum(one.rows for one in files))
        return time.monotonic() - started

    for number in (-2, -1):
        whole(number, small)
        plain(number, small)
    with_it, without = alternately(ROUNDS, whole, plain)
    spark.stop()
    done = outcomes[-1]
    if done.transactions * 4 != RECORDS or done.outputs != {"out": RECORDS}:
        msg = f"the sync of {RECORDS} records gave {done}"
        raise RuntimeError(msg)
    log(f"sync {with_it} s, without reassembly {without} s; by stage {done.seconds}")
    details = {"sync_seconds": with_it, "plain_seconds": without, "stages": [one.seconds for one in outcomes]}
    return [
        Result(
            f"sync of {RECORDS:,} records by the same without reassembly",
            min(with_it) / min(without),
            "×",
            1.25,
            details=details,
        ),
        Result(f"sync of {RECORDS:,} records", min(with_it), "s"),
    ]
