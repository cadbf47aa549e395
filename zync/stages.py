"""The stages of a sync, in order: what is known of it grows from one to the next."""

import uuid
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from zync.config import Config
from zync.etl.rules import JSON_OPTIONS, VIEW_COLUMNS, bind_lookups
from zync.etl.transform import Failure, check_limit, find_failures, transform
from zync.ingest.raw import DECISIONS, stored_position
from zync.lake import data_files
from zync.spark import Keeper, is_data_error, local, pace, read_parquet
from zync.sql import options, statement
from zync.staging.commit import Written, add_rows, commit, discard, read_back, write
from zync.staging.cursor import conclude
from zync.transactions.assemble import (
    Assembled,
    Decision,
    Finishing,
    assemble,
    instead,
    late_before,
    look_again,
    with_state,
    without_state,
)
from zync.transactions.decode import RAW_COLUMNS, decode
from zync.transactions.done import Done
from zync.transactions.gather import gather, regather, reread
from zync.transactions.known import IN_FLIGHT_COLUMNS, Known, read_quarantined, read_settled
from zync.transactions.order import decided, held, places

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL = 30_000
"""Up to so many new records a sync is small: planning and starting tasks, not rows, is what takes its time.

Then Spark neither compiles nor replans, one task writes all, and only what is known of the ids at hand goes to Spark;
and a session made for such a sync is one that starts quickly. Measured: at 50,000 both ways take the same time.
"""


REVISITING = ("redrive", "drop")
"""Decisions about what is in quarantine."""


@dataclass(frozen=True)
class Sync:
    """One sync under way: what is known of it by now. Each stage fills in its part.

    identified: the new records. met: of `known.in_flight`, those that the new records may belong to. earlier: how many
    records of those are read again, as they are whole now.
    """

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
    met: pa.Table | None = None
    settled: "DataFrame | None" = None
    assembled: Assembled | None = None
    settling: "DataFrame | None" = None
    failures: tuple[Failure, ...] = ()
    written: Written | None = None
    after: Known | None = None
    earlier: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """This sync's number: one more than the newest in staging."""
        return self.known.cursor.sync + 1

    @property
    def small(self) -> bool:
        """Whether there is so little to do that planning and starting tasks is most of the work."""
        return self.head - self.known.cursor.head + self.earlier <= SMALL

    @property
    def stateful(self) -> bool:
        """Whether in-flight transactions come as the state of their aggregates, not as their records."""
        return self.done.mergeable and not any(topic.record_id for topic in self.config.topics.values())

    @property
    def in_order(self) -> bool:
        """Whether transactions go out in the order of commit, and wait for that."""
        return self.config.transactions.order == "commit"

    @property
    def decided(self) -> bool:
        """Whether there are decisions of operators in raw."""
        return stored_position(self.raw, DECISIONS) is not None

    @property
    def cutoff(self) -> int:
        """What began at or before this (in microseconds) has expired, by raw's clock: the newest `ingested`."""
        newest = there(there(self.assembled).summary.ingested)
        return newest - self.config.transactions.expire_after // timedelta(microseconds=1)

    @property
    def limit(self) -> int:
        """The most transactions and records by themselves that may go to quarantine."""
        summary = there(self.assembled).summary
        return self.config.limits.quarantined(summary.completed + summary.faulty)

    @property
    def changed(self) -> bool:
        """Whether ids or `done` are not what they were, so that all that is in flight is to be judged anew."""
        before = self.known.cursor.digests.get("transactions")
        return before is not None and before != self.config.digests()["transactions"]


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
    """What staging knows of these records' transactions: when they were settled, and which of them are in flight."""
    settled, in_flight, identified = sync.known.settled, sync.known.in_flight, there(sync.identified)
    if sync.in_order:
        whole = held(in_flight)
        waiting, in_flight = in_flight.filter(whole), in_flight.filter(pc.invert(whole))
        settled = pa.concat_tables([settled, pa.table({"txn": waiting["txn"], "seqno": places(waiting)})])
    if sync.small and (settled.num_rows or in_flight.num_rows):
        identified = sync.keeper.keep(identified)
        ids = identified.where("NOT alone").select("txn").distinct().toArrow()["txn"]
        settled = settled.filter(pc.is_in(settled["txn"], ids))
        in_flight = in_flight.filter(pc.is_in(in_flight["txn"], ids))
    newest = settled.group_by("txn").aggregate([("seqno", "max")]).rename_columns({"seqno_max": "settled_at"})
    settled_rows = local(sync.spark, newest.select(["txn", "settled_at"]), "txn string, settled_at bigint")
    if newest.num_rows <= SMALL:
        settled_rows = settled_rows.hint("broadcast")
    return replace(sync, identified=identified, met=in_flight, settled=settled_rows)


def judge(sync: Sync) -> Sync:
    """Each record's fate; and the earlier records of transactions that complete now after having been in flight."""
    assembled = _assemble(sync, _with_met(sync))
    if assembled.summary.torn:
        assembled = _by_run(sync, assembled)
    if sync.done.preset and assembled.summary.late_before:
        assembled = _look_again(sync, assembled)
    settling = assembled.rows
    if any(one.action in REVISITING and not one.flying for one in assembled.summary.decisions):
        assembled, redriven = _revisit(sync, assembled)
        settling = settling.unionByName(redriven, allowMissingColumns=True)
    sync = replace(sync, assembled=assembled, settling=settling)
    if sync.in_order:
        sync = _in_turn(sync)
    summary, settling = there(sync.assembled).summary, there(sync.settling)
    finishing = {one.txn: one.completes_at for one in summary.finishing}
    if finishing:
        in_flight = sync.known.in_flight
        in_flight = in_flight.filter(pc.is_in(in_flight["txn"], pa.array(finishing)))
        completes_at = pa.array([finishing[txn] for txn in in_flight["txn"].to_pylist()], pa.int64())
        wanted = _wanted(in_flight, completes_at)
        sync = replace(sync, earlier=pc.sum(in_flight["count"]).as_py())
        pace(sync.spark, sync.config.spark, small=sync.small)
        earlier = gather(sync.spark, sync.raw, wanted, sync.known.cursor.head, sync.config, sync.done)
        earlier = sync.keeper.keep(earlier.selectExpr("*", "'whole' AS fate"))
        sync = replace(sync, settling=settling.unionByName(earlier, allowMissingColumns=True))
    discarded = set(summary.discarded)
    failures = tuple(Failure(seqno, reason) for seqno, reason in summary.tainted if seqno not in discarded)
    check_limit(sync.limit, failures, summary.faulty)
    return replace(sync, failures=failures)


def _in_turn(sync: Sync) -> Sync:
    """Holds what is whole behind the first in the order of commit that is not; what was held till then goes out."""
    assembled, in_flight = there(sync.assembled), sync.known.in_flight
    summary, whole = assembled.summary, held(in_flight)
    others = in_flight.filter(pc.invert(pc.or_(whole, pc.is_in(in_flight["txn"], there(sync.met)["txn"]))))
    first_open = min((one for one in (summary.open, pc.min(places(others)).as_py()) if one), default=sync.head + 1)
    waiting = in_flight.filter(whole)
    going = waiting.filter(pc.less(places(waiting), first_open))
    gone = summary.discarded
    late = f"fate = 'whole' AND completes_at > {first_open} AND completes_at NOT IN ({', '.join(map(str, [0, *gone]))})"
    settling = there(sync.settling).selectExpr(
        "* EXCEPT (fate, completes_at)",
        f"CASE WHEN {late} THEN 'held' ELSE fate END AS fate",
        f"CASE WHEN NOT coalesce({late}, false) THEN completes_at END AS completes_at",
    )
    newly = settling.where("fate = 'held'").select("txn").distinct().count()
    firsts = zip(going["txn"].to_pylist(), going["seqno"].to_pylist(), places(going).to_pylist(), strict=True)
    bad = zip(places(going).to_pylist(), going["reason"].to_pylist(), strict=True)
    summary = replace(
        summary,
        completed=summary.completed - newly + going.num_rows,
        finishing=(
            *(one for one in summary.finishing if one.completes_at < first_open or one.completes_at in gone),
            *(Finishing(*one) for one in firsts),
        ),
        tainted=(
            *((at, why) for at, why in summary.tainted if at < first_open),
            *((at, why) for at, why in bad if why),
        ),
        decisions=(*summary.decisions, *decided(going)),
    )
    return replace(sync, assembled=replace(assembled, summary=summary), settling=settling)


def _with_met(sync: Sync) -> "DataFrame":
    """The new records with what is in flight of their transactions: as one row with its state, or record by record."""
    met, identified = there(sync.met), there(sync.identified)
    if not met.num_rows:
        return without_state(identified)
    if sync.stateful:
        return with_state(sync.spark, identified, local(sync.spark, met, IN_FLIGHT_COLUMNS), sync.done)
    return without_state(identified.unionByName(_records_of(sync, met)))


def _records_of(sync: Sync, in_flight: pa.Table) -> "DataFrame":
    """The records of those transactions that are in flight, read again."""
    wanted = _wanted(in_flight, pa.nulls(in_flight.num_rows, pa.int64()))
    earlier = gather(sync.spark, sync.raw, wanted, sync.known.cursor.head, sync.config, sync.done)
    return earlier.drop("completes_at", "opens_range", "closes_range")


def _assemble(sync: Sync, rows: "DataFrame", *, by_run: bool = False) -> Assembled:
    return assemble(
        sync.spark,
        rows,
        there(sync.settled),
        sync.config,
        sync.done,
        sync.keeper,
        decided=sync.decided,
        by_run=by_run,
    )


def _by_run(sync: Sync, assembled: Assembled) -> Assembled:
    """Transactions with rows of several runs of their connector, judged by all of their records."""
    met, torn = there(sync.met), assembled.summary.torn
    ids = local(sync.spark, [(txn,) for txn in torn], "txn string").hint("broadcast")
    rows = there(sync.identified).join(ids, "txn", "left_semi")
    met = met.filter(pc.is_in(met["txn"], pa.array(torn, pa.string())))
    if met.num_rows:
        rows = rows.unionByName(_records_of(sync, met))
    return instead(sync.spark, assembled, _assemble(sync, without_state(rows), by_run=True))


def _look_again(sync: Sync, assembled: Assembled) -> Assembled:
    """Late records beside their transactions' own, which are read again: does what comes late repeat what is there?"""
    txns = late_before(assembled).select("txn").distinct().toArrow()["txn"]
    wanted = read_settled(sync.staging, sync.known.settled.filter(pc.is_in(sync.known.settled["txn"], txns)))
    if sync.in_order:
        waiting = sync.known.in_flight.filter(held(sync.known.in_flight))
        waiting = waiting.filter(pc.is_in(waiting["txn"], txns))
        wanted = pa.concat_tables([wanted, _wanted(waiting, places(waiting)).select(wanted.column_names)])
    earlier = gather(sync.spark, sync.raw, wanted, sync.known.cursor.head, sync.config, sync.done)
    earlier = earlier.drop("completes_at", "opens_range", "closes_range")
    return look_again(sync.spark, assembled, earlier, sync.config, sync.done, sync.keeper)


def _revisit(sync: Sync, assembled: Assembled) -> "tuple[Assembled, DataFrame]":
    """Decisions about transactions in quarantine: those that act; and the records of those that are to go out anew."""
    asked = [one for one in assembled.summary.decisions if one.action in REVISITING and not one.flying]
    quarantined = read_quarantined(sync.staging, {one.txn for one in asked})
    acting: dict[str, Decision] = {}
    for one in sorted(asked, key=lambda one: one.seqno):
        if one.txn in quarantined:
            acting.setdefault(one.txn, one)
    decisions = tuple(
        replace(one, acts=True, settles=one.seqno) if acting.get(one.txn) is one else one
        for one in assembled.summary.decisions
    )
    ranges = [
        (txn, one.seqno, part["first"], part["last"])
        for txn, one in acting.items()
        if one.action == "redrive"
        for part in quarantined[txn]
    ]
    records = sync.keeper.keep(regather(sync.spark, sync.raw, ranges, sync.config, sync.done))
    bad = [(row["completes_at"], row["bad"]) for row in records.where("bad IS NOT NULL").toLocalIterator()]
    summary = replace(
        assembled.summary,
        decisions=decisions,
        ignored=assembled.summary.ignored - len(acting),
        completed=assembled.summary.completed + len(acting),
        tainted=(*assembled.summary.tainted, *dict(sorted(bad)).items()),
    )
    return replace(assembled, summary=summary), records


def transform_and_write(sync: Sync) -> Sync:
    """The rules' rows and the bookkeeping, as files; transactions that a rule fails on are found, and set aside."""
    records = there(sync.settling).where("completes_at IS NOT NULL AND fault IS NULL AND NOT carried")
    if discarded := there(sync.assembled).summary.discarded:
        gone = local(sync.spark, [(seqno,) for seqno in discarded], "completes_at bigint")
        records = records.join(gone.hint("broadcast"), "completes_at", "left_anti")
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
            faulty = there(sync.assembled).summary.faulty
            found = find_failures(sync.spark, records, sync.config, sync.failures, faulty, sync.limit, sync.keeper)
            if len(found) == len(sync.failures):
                raise
            sync = replace(sync, failures=found)
            continue
        return replace(sync, written=read_back(sync.staging, folder))


def _write(sync: Sync, records: "DataFrame", folder: str) -> None:
    rows = _bookkeeping(sync)
    offsets, spread = sync.known.cursor.offsets, not sync.small
    outputs = transform(sync.spark, records, sync.config, offsets, sync.failures, keeper=sync.keeper, spread=spread)
    if outputs is not None and sync.done.preset:
        whole = there(sync.settling).where("completes_at IS NOT NULL")
        positions = whole.groupBy("completes_at").agg({"position": "max"}).toDF("seqno", "position")
        outputs = outputs.join(positions, "seqno", "left")
    if outputs is not None:
        rows = rows.unionByName(outputs, allowMissingColumns=True)
    write(rows.coalesce(1) if sync.small else rows, sync.staging, folder, sync.number)


def _bookkeeping(sync: Sync) -> "DataFrame":
    spark, summary = sync.spark, there(sync.assembled).summary
    there(sync.settling).createOrReplaceTempView("settling")
    failures = [(one.seqno, one.reason, one.rule) for one in sync.failures]
    set_aside = local(spark, failures, "seqno bigint, reason string, rule string").hint("broadcast")
    set_aside.createOrReplaceTempView("set_aside")
    decisions = [
        (one.settles, one.seqno, one.txn, one.action, one.who, one.why) for one in summary.decisions if one.acts
    ]
    columns = "settles bigint, seqno bigint, txn string, action string, who string, why string"
    decided = local(spark, decisions, columns).hint("broadcast")
    decided.createOrReplaceTempView("decided")
    rows = spark.sql(
        statement(
            "bookkeep",
            head=str(sync.known.cursor.head),
            state=sync.done.state_now if sync.stateful else "named_struct('none', CAST(NULL AS STRING))",
            expired=f"timestamp_micros({sync.cutoff})",
            json_options=options(JSON_OPTIONS),
        )
    )
    if summary.ignored:
        rows = rows.unionByName(spark.sql(statement("ignored")), allowMissingColumns=True)
    return rows


def conclude_and_commit(sync: Sync) -> Sync:
    """The cursor, from what is in flight after this sync; and then everything at once."""
    written, before = there(sync.written), sync.known
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


def _wanted(in_flight: pa.Table, completes_at: pa.Array) -> pa.Table:
    """What `gather` takes, of transactions in flight."""
    columns = {"txn": in_flight["txn"], "first": in_flight["seqno"], "completes_at": completes_at}
    return pa.table({**columns, "records": in_flight["records"], "state": in_flight["state"]})


T = TypeVar("T")


def there(value: T | None) -> T:
    """What an earlier stage left."""
    if value is None:
        msg = "a stage ran before the one that it needs"
        raise AssertionError(msg)
    return value
