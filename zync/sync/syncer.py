"""`zync sync raw staging`: raw records to whole transactions to output rows, in one commit a sync."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from zync.config.model import Config
from zync.errors import UsageError, ZyncError
from zync.lake.lock import owned
from zync.lake.table import open_table, refresh
from zync.raw.table import existing_raw, next_seqno, positions, trimmed
from zync.spark.frames import Keeper
from zync.spark.session import session
from zync.spark.tuning import SMALL
from zync.staging.bookkeeping import Known, read_cursor, read_known
from zync.staging.commit import checkpoint, reclaim
from zync.staging.set_aside import SetAside, read_set_aside, seqnos
from zync.staging.table import ensure_staging, open_staging
from zync.sync.conclude_and_commit import conclude_and_commit
from zync.sync.context import Sync, there
from zync.sync.judge import judge
from zync.sync.overdue import overdue, release
from zync.sync.read_new import read_new
from zync.sync.recall import recall
from zync.sync.transform_and_write import transform_and_write
from zync.transactions.decode import Decoder
from zync.transactions.done import understand
from zync.transactions.needed import check_start

if TYPE_CHECKING:
    from zync.sync.metrics import SyncMetrics
from zync.sync.outcome import Outcome

_LOOK_SECONDS = 0.1


STAGES: tuple[Callable[[Sync], Sync], ...] = (read_new, recall, judge, transform_and_write, conclude_and_commit)


class Syncer:
    """Syncs one raw into one staging, as often as asked. `known`: what staging said after the last sync.

    `clock`: when the newest record of the last sync was taken into raw, in microseconds.

    `spark`: of `zync.spark.session`, so that it is nobody else's: each sync makes temporary views in it, and ends by
    dropping all that there are.
    """

    def __init__(self, config: Config, raw: str, staging: str, spark: SparkSession) -> None:
        self.config, self.raw, self.staging, self.spark = config, raw, staging, spark
        self.done = understand(spark, config)
        self.decoder = Decoder(spark, config, self.done)
        self.known: Known | None = None
        self.clock = 0
        self._staging_version = -1

    def sync(self, upto: int | None = None) -> Outcome:
        """One sync: all that is new in raw now (or up to that seqno), in one commit; nothing where nothing is new."""
        raw = existing_raw(self.raw)
        staging = open_staging(self.staging)
        known = self._read_known(staging)
        cursor = known.cursor
        if self.config.transactions.order == "commit":
            self.config.transactions.check_partitions(Counter(one.topic for one in positions(raw).next))
        head = next_seqno(raw) - 1 if upto is None else max(upto, cursor.head)
        if cursor.raw_id not in (None, str(raw.metadata().id)) or cursor.head > head:
            msg = f"staging at {self.staging} was made from another raw than {self.raw}: give another staging"
            raise UsageError(msg)
        if head == cursor.head and not (known.in_flight.num_rows and cursor.judged_otherwise(self.config)):
            return Outcome(cursor.sync, cursor.seqno, cursor.head, **_in_flight(known))
        if staging is not None:
            check_start(raw, staging, cursor)
        staging = ensure_staging(self.staging, staging)
        gone = trimmed(raw, cursor.head, head)
        with Keeper(self.spark) as keeper:
            sync = Sync(self.spark, keeper, self.config, self.done, self.decoder, raw, staging, known, head, gone)
            self.known = None  # until it is over: what a failed sync leaves is read anew
            for stage in STAGES:
                started = time.monotonic()
                sync = stage(sync)
                sync.seconds[stage.__name__] = round(time.monotonic() - started, 3)
        self.known, self._staging_version = sync.after, staging.version() + 1  # if none came between
        self.clock = there(sync.assembled).summary.ingested or self.clock
        checkpoint(staging)
        return _outcome(sync)

    def release_overdue(self) -> bool:
        """Whether something is released now that others wait for too long (`transactions.incomplete`).

        That is a decision in raw: the next sync acts on it, as each replay does.
        """
        txn = overdue(self.config, self.known, self.clock) if self.known else None
        if txn is not None:
            release(self.raw, txn, self.config)
        return txn is not None

    def _read_known(self, staging: DeltaTable | None) -> Known:
        if self.known is None or staging is None or staging.version() != self._staging_version:
            self.known = read_known(staging, self.config.transactions.remember)
            self._staging_version = staging.version() if staging else -1
            if staging is not None:
                reclaim(staging, self.known.cursor.sync)
        return self.known


def _in_flight(known: Known) -> dict[str, Any]:
    """How many transactions are in flight and how many expired, and since when the oldest of the former is."""
    pending = pc.equal(known.in_flight["kind"], "pending")
    waiting = known.in_flight.filter(pending)
    return {
        "in_flight": waiting.num_rows,
        "expired": known.in_flight.num_rows - waiting.num_rows,
        "oldest": pc.min(waiting["since"]).as_py(),
    }


def _outcome(sync: Sync) -> Outcome:
    after, written, summary = there(sync.after), there(sync.written), there(sync.assembled).summary
    discarded = len(summary.discarded)
    aside = {
        "late": summary.late,
        "duplicate": summary.duplicate,
        "quarantined": summary.faulty + len(sync.failures),
        "discarded": discarded,
        "ignored": summary.ignored,
    }
    return Outcome(
        sync=sync.number,
        cursor=after.cursor.seqno,
        head=after.cursor.head,
        records=sync.new,
        transactions=summary.completed - len(sync.failures) - discarded,
        outputs=written.outputs,
        **_in_flight(after),
        set_aside={kind: count for kind, count in aside.items() if count},
        seconds=sync.seconds,
    )


def sync_once(config: Config, raw: str, staging: str, master: str | None = None) -> Outcome:
    """`zync sync`: one sync of the raw at `raw` into the staging at `staging`, in a session made for it.

    Raises OwnedError where another sync has this staging; nothing was changed then.
    """
    head = next_seqno(existing_raw(raw)) - 1
    with owned(staging):
        table = open_staging(staging)
        brief = head - (read_cursor(table).head if table else 0) <= SMALL
        syncer = Syncer(config, raw, staging, session(master, config.spark, brief=brief))
        outcome = syncer.sync()
        syncer.release_overdue()
        return outcome


def follow(
    config: Config,
    raw: str,
    staging: str,
    stop: threading.Event,
    on_sync: Callable[[Outcome], None],
    master: str | None = None,
    metrics: "SyncMetrics | None" = None,
) -> None:
    """`zync sync --follow`: syncs whenever raw has grown, in one warm session, until `stop` is set."""
    with owned(staging):
        if metrics:  # beside Spark's start, which takes longer
            threading.Thread(target=_tell_what_is_there, args=(metrics, staging), name="metrics", daemon=True).start()
        syncer = Syncer(config, raw, staging, session(master, config.spark))
        seen = -1
        table: DeltaTable | None = None
        while not stop.is_set():
            table = table or open_table(raw)
            if table is not None:
                refresh(table)
                if table.version() != seen:
                    seen = table.version()
                    outcome = syncer.sync()
                    if metrics:
                        metrics.turn()
                        metrics.synced(outcome)
                    if outcome.seconds:
                        on_sync(outcome)
                        syncer.release_overdue()
                    continue
            if metrics:
                metrics.turn()
            stop.wait(_LOOK_SECONDS)


def _tell_what_is_there(metrics: "SyncMetrics", location: str) -> None:
    """Tells `metrics` what staging has: a first sync may take half a minute, and then says only what it did itself."""
    with suppress(ZyncError, OSError, pa.ArrowException, DeltaError):  # of which the sync hears, too
        table = open_staging(location)
        aside = read_set_aside(table) if table else SetAside()
        late = sum(len(seqnos(one["records"])) for one in aside.late.values())
        undecided = {"quarantined": sum(map(len, aside.quarantined.values())), "late": late}
        metrics.found(**_in_flight(read_known(table, 0)), undecided=undecided)
