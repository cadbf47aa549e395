"""`zync sync raw staging`: raw records to whole transactions to output rows, in one commit a sync."""

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from zync.config import Config
from zync.errors import UsageError
from zync.etl.rules import VIEW_COLUMNS, bind_lookups
from zync.etl.transform import Failure, check_limit, find_failures, transform
from zync.ingest.raw import next_seqno
from zync.lake import data_files, ensure_table, existing_table, open_table
from zync.spark import Keeper, is_data_error, local, pace, read_parquet, session, statement
from zync.staging.commit import Written, add_rows, checkpoint, commit, discard, owned, read_back, reclaim, write
from zync.staging.cursor import conclude
from zync.staging.table import SPARK_COLUMNS, STAGING_SCHEMA
from zync.transactions.assemble import Assembled, assemble, with_state, without_state
from zync.transactions.decode import RAW_COLUMNS, decode
from zync.transactions.done import Done, understand
from zync.transactions.gather import gather, reread
from zync.transactions.known import IN_FLIGHT_COLUMNS, Known, read_cursor, read_known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL = 30_000
"""Up to so many new records, their ids are looked at first, and only what is known of those goes to Spark."""
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Sync:
    """One sync under way: what is known of it by now. Each stage fills in its part."""

    spark: "SparkSession"
    keeper: Keeper
    config: Config
    done: Done
    raw: DeltaTable
    staging: DeltaTable
    known: Known
    head: int
    lookups: dict[str, str] = field(default_factory=dict)
    identified: "DataFrame | None" = None
    settled: "DataFrame | None" = None
    assembled: Assembled | None = None
    settling: "DataFrame | None" = None
    failures: tuple[Failure, ...] = ()
    written: Written | None = None
    after: Known | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """This sync's number: one more than the newest in staging."""
        return self.known.cursor.sync + 1

    @property
    def small(self) -> bool:
        """Whether there is so little that is new that planning and starting tasks is most of the work."""
        return self.head - self.known.cursor.head <= SMALL

    @property
    def stateful(self) -> bool:
        """Whether in-flight transactions come as the state of their aggregates, not as their records."""
        return self.done.mergeable and not any(topic.record_id for topic in self.config.topics.values())

    @property
    def cutoff(self) -> int:
        """What began at or before this (in microseconds) has expired, by raw's clock: the newest `ingested`."""
        newest = _there(_there(self.assembled).summary.ingested)
        return newest - self.config.transactions.expire_after // timedelta(microseconds=1)

    @property
    def changed(self) -> bool:
        """Whether ids or `done` are not what they were, so that all that is in flight is to be judged anew."""
        before = self.known.cursor.digests.get("transactions")
        return before is not None and before != self.config.digests()["transactions"]


@dataclass(frozen=True)
class Outcome:
    """What a sync did. `sync` is its number; where nothing was new, nothing was written and all counts are 0.

    Records and transactions are counts, `outputs` rows by topic, `set_aside` records (transactions for
    quarantined rules) by kind, `seconds` by stage.
    """

    sync: int
    cursor: int
    head: int
    records: int = 0
    transactions: int = 0
    outputs: dict[str, int] = field(default_factory=dict)
    in_flight: int = 0
    expired: int = 0
    set_aside: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def read_new(sync: Sync) -> Sync:
    """The records after head, decoded; where ids or `done` changed, with all that is in flight."""
    head = sync.known.cursor.head
    files = data_files(sync.raw, "seqno", above=head, upto=sync.head)
    rows = read_parquet(sync.spark, [one.uri for one in files], RAW_COLUMNS)
    if files and (files[0].lowest <= head or files[-1].highest > sync.head):
        rows = rows.where(f"seqno > {head} AND seqno <= {sync.head}")
    known = sync.known
    if sync.changed and known.in_flight.num_rows:
        rows = rows.unionByName(reread(sync.spark, sync.raw, known.in_flight))
        known = replace(known, in_flight=known.in_flight.slice(0, 0))
    return replace(sync, known=known, identified=decode(sync.spark, rows, sync.config, sync.done))


def recall(sync: Sync) -> Sync:
    """What staging knows of these records' transactions: when they were settled, and what of them is in flight."""
    settled, in_flight, identified = sync.known.settled, sync.known.in_flight, _there(sync.identified)
    if sync.small and (settled.num_rows or in_flight.num_rows):
        identified = sync.keeper.keep(identified)
        ids = identified.where("NOT alone").select("txn").distinct().toArrow()["txn"]
        settled = settled.filter(pc.is_in(settled["txn"], ids))
        in_flight = in_flight.filter(pc.is_in(in_flight["txn"], ids))
    newest = settled.group_by("txn").aggregate([("seqno", "max")]).rename_columns({"seqno_max": "settled_at"})
    if sync.stateful and in_flight.num_rows:
        states = local(sync.spark, in_flight, IN_FLIGHT_COLUMNS)
        identified = with_state(sync.spark, identified, states, sync.done)
    else:
        if in_flight.num_rows:
            wanted = _wanted(in_flight, pa.nulls(in_flight.num_rows, pa.int64()))
            head = sync.known.cursor.head
            earlier = gather(sync.spark, sync.raw, wanted, head, sync.config, sync.done)
            identified = identified.unionByName(earlier.drop("completes_at", "opens_range", "closes_range"))
        identified = without_state(identified)
    settled_rows = local(sync.spark, newest.select(["txn", "settled_at"]), "txn string, settled_at bigint")
    if newest.num_rows <= SMALL:
        settled_rows = settled_rows.hint("broadcast")
    return replace(sync, identified=identified, settled=settled_rows)


def judge(sync: Sync) -> Sync:
    """Each record's fate; and the earlier records of transactions that complete now after having been in flight."""
    assembled = assemble(sync.spark, _there(sync.identified), _there(sync.settled), sync.config, sync.done, sync.keeper)
    sync = replace(sync, assembled=assembled, settling=assembled.rows)
    finishing = {one.txn: one.completes_at for one in assembled.summary.finishing}
    if finishing:
        in_flight = sync.known.in_flight
        in_flight = in_flight.filter(pc.is_in(in_flight["txn"], pa.array(finishing)))
        completes_at = pa.array([finishing[txn] for txn in in_flight["txn"].to_pylist()], pa.int64())
        wanted = _wanted(in_flight, completes_at)
        earlier = gather(sync.spark, sync.raw, wanted, sync.known.cursor.head, sync.config, sync.done)
        earlier = sync.keeper.keep(earlier.selectExpr("*", "'whole' AS fate"))
        sync = replace(sync, settling=assembled.rows.unionByName(earlier, allowMissingColumns=True))
    failures = tuple(Failure(seqno, reason) for seqno, reason in assembled.summary.tainted)
    check_limit(sync.config, failures, assembled.summary.faulty)
    return replace(sync, failures=failures)


def transform_and_write(sync: Sync) -> Sync:
    """The rules' rows and the bookkeeping, as files; transactions that a rule fails on are found, and set aside."""
    records = _there(sync.settling).where("completes_at IS NOT NULL AND fault IS NULL AND NOT carried")
    structs = [column for column in records.columns if column.startswith("as_")]
    records = records.selectExpr(
        "completes_at AS seqno", "seqno AS record_seqno", *(c for c in VIEW_COLUMNS if "seqno" not in c), *structs
    )
    sync = replace(sync, lookups=bind_lookups(sync.spark, sync.config))
    while True:
        folder = f"sync-{sync.number:08d}-{uuid.uuid4().hex[:8]}"
        try:
            _write(sync, records, folder)
        except Exception as error:
            discard(sync.staging, folder)
            if not is_data_error(error):
                raise
            faulty = _there(sync.assembled).summary.faulty
            found = find_failures(sync.spark, records, sync.config, sync.failures, faulty)
            if len(found) == len(sync.failures):
                raise
            sync = replace(sync, failures=found)
            continue
        return replace(sync, written=read_back(sync.staging, folder))


def _write(sync: Sync, records: "DataFrame", folder: str) -> None:
    rows = _bookkeeping(sync)
    offsets, keeper = sync.known.cursor.offsets, None if sync.small else sync.keeper
    outputs = transform(sync.spark, records, sync.config, offsets, sync.failures, keeper=keeper)
    if outputs is not None:
        rows = rows.unionByName(outputs, allowMissingColumns=True)
    missing = [
        f"CAST(NULL AS {kind}) AS {column}" for column, kind in SPARK_COLUMNS if column not in (*rows.columns, "sync")
    ]
    rows = rows.selectExpr("*", f"{sync.number}L AS sync", *missing).select(*(name for name, _ in SPARK_COLUMNS))
    write(rows.coalesce(1) if sync.small else rows, sync.staging, folder)


def _bookkeeping(sync: Sync) -> "DataFrame":
    spark, summary = sync.spark, _there(sync.assembled).summary
    _there(sync.settling).createOrReplaceTempView("settling")
    failures = [(one.seqno, one.reason, one.rule) for one in sync.failures]
    set_aside = local(spark, failures, "seqno bigint, reason string, rule string").hint("broadcast")
    set_aside.createOrReplaceTempView("set_aside")
    state = ", ".join(f"'p{n}', a{n}" for n in range(len(sync.done.aggregates))) if sync.stateful else ""
    rows = spark.sql(
        statement(
            "bookkeep",
            head=str(sync.known.cursor.head),
            state=state or "'none', CAST(NULL AS STRING)",
            expired=f"timestamp_micros({sync.cutoff})",
        )
    )
    if summary.ignored:
        rows = rows.unionByName(spark.sql(statement("ignored")), allowMissingColumns=True)
    return rows


def conclude_and_commit(sync: Sync) -> Sync:
    """The cursor, from what is in flight after this sync; and then everything at once."""
    written, before = _there(sync.written), sync.known
    nonce = uuid.uuid4().hex
    concluded = conclude(
        before,
        written.rows,
        number=sync.number,
        head=sync.head,
        cutoff=sync.cutoff,
        full=sync.changed or before.cursor.sync == 0,
        remember=sync.config.transactions.remember,
        cursor={
            "offsets": {**before.cursor.offsets, **written.offsets},
            "raw": {"id": str(sync.raw.metadata().id), "version": sync.raw.version()},
            "nonce": nonce,
            "digests": {**sync.config.digests(), **{f"lookup {k}": v for k, v in sync.lookups.items()}},
        },
    )
    add_rows(sync.staging, written.folder, concluded.rows)
    commit(sync.staging, written.folder, sync.number, nonce)
    return replace(sync, after=concluded.known)


STAGES: tuple[Callable[[Sync], Sync], ...] = (read_new, recall, judge, transform_and_write, conclude_and_commit)


class Syncer:
    """Syncs one raw into one staging, as often as asked. `known`: what staging said after the last sync."""

    def __init__(self, config: Config, raw: str, staging: str, spark: "SparkSession") -> None:
        self.config, self.raw, self.staging, self.spark = config, raw, staging, spark
        self.done = understand(spark, config)
        self.known: Known | None = None
        self._staging_version = -1

    def sync(self, upto: int | None = None) -> Outcome:
        """One sync: all that is new in raw now (or up to that seqno), in one commit; nothing where nothing is new."""
        raw = existing_table(self.raw, "zync sync-from kafka raw")
        staging = open_table(self.staging)
        known = self._read_known(staging)
        cursor = known.cursor
        head = next_seqno(raw) - 1 if upto is None else max(upto, cursor.head)
        if cursor.raw_id not in (None, str(raw.metadata().id)) or cursor.head > head:
            msg = f"staging at {self.staging} was made from another raw than {self.raw}: give another staging"
            raise UsageError(msg)
        if head == cursor.head:
            return Outcome(cursor.sync, cursor.seqno, cursor.head, in_flight=known.in_flight.num_rows)
        staging = staging or ensure_table(self.staging, STAGING_SCHEMA, "zync staging: whole transactions")
        with Keeper(self.spark) as keeper:
            sync = Sync(self.spark, keeper, self.config, self.done, raw, staging, known, head)
            pace(self.spark, self.config.spark, small=sync.small)
            self.known = None  # until it is over: what a failed sync leaves is read anew
            for stage in STAGES:
                started = time.monotonic()
                sync = stage(sync)
                sync.seconds[stage.__name__] = round(time.monotonic() - started, 3)
        self.known, self._staging_version = sync.after, staging.version() + 1  # refused if another had come between
        checkpoint(staging)
        return _outcome(sync)

    def _read_known(self, staging: DeltaTable | None) -> Known:
        if self.known is None or staging is None or staging.version() != self._staging_version:
            self.known = read_known(staging, self.config.transactions.remember)
            self._staging_version = staging.version() if staging else -1
            if staging is not None:
                reclaim(staging, self.known.cursor.sync)
        return self.known


def _outcome(sync: Sync) -> Outcome:
    after, written, summary = _there(sync.after), _there(sync.written), _there(sync.assembled).summary
    kinds = after.in_flight["kind"].to_pylist()
    aside = {
        "late": summary.late,
        "duplicate": summary.duplicate,
        "quarantined": summary.faulty + len(sync.failures),
        "ignored": summary.ignored,
    }
    return Outcome(
        sync=sync.number,
        cursor=after.cursor.seqno,
        head=after.cursor.head,
        records=sync.head - sync.known.cursor.head,
        transactions=summary.completed - len(sync.failures),
        outputs=written.outputs,
        in_flight=kinds.count("pending"),
        expired=kinds.count("expired"),
        set_aside={kind: count for kind, count in aside.items() if count},
        seconds=sync.seconds,
    )


def _wanted(in_flight: pa.Table, completes_at: pa.Array) -> pa.Table:
    columns = {"txn": in_flight["txn"], "first": in_flight["seqno"], "completes_at": completes_at}
    return pa.table({**columns, "records": in_flight["records"]})


T = TypeVar("T")


def _there(value: T | None) -> T:
    """What an earlier stage left."""
    if value is None:
        msg = "a stage ran before the one that it needs"
        raise AssertionError(msg)
    return value


def sync_once(config: Config, raw: str, staging: str, master: str | None = None) -> Outcome:
    """`zync sync`: one sync of the raw at `raw` into the staging at `staging`, in a session made for it.

    Raises OwnedError where another sync has this staging; nothing was changed then.
    """
    head = next_seqno(existing_table(raw, "zync sync-from kafka raw")) - 1
    with owned(staging):
        there = open_table(staging)
        brief = head - (read_cursor(there).head if there else 0) <= SMALL
        return Syncer(config, raw, staging, session(master, config.spark, brief=brief)).sync()


def follow(
    config: Config,
    raw: str,
    staging: str,
    stop: threading.Event,
    on_sync: Callable[[Outcome], None],
    master: str | None = None,
) -> None:
    """`zync sync --follow`: syncs whenever raw has grown, in one warm session, until `stop` is set."""
    with owned(staging):
        syncer = Syncer(config, raw, staging, session(master, config.spark))
        seen = -1
        table: DeltaTable | None = None
        while not stop.is_set():
            table = table or open_table(raw)
            if table is not None:
                table.update_incremental()
                if table.version() != seen:
                    seen = table.version()
                    outcome = syncer.sync()
                    if outcome.records:
                        on_sync(outcome)
                    continue
            stop.wait(_LOOK_SECONDS)
