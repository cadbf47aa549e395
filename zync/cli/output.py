"""What commands print: a method for each result, for people (`ConsoleOutput`) or for programs (`JsonOutput`).

No other code of a command prints.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from zync.errors import ZyncError
from zync.log import log_line, logs_as_json
from zync.text import Verbatim, amount, byte_size, to_json

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from zync.cli.bar import Bar
    from zync.deliver.kafka.delivery import Delivered
    from zync.deliver.tables.batch import Batch
    from zync.deliver.tables.snapshots import Snapshot
    from zync.ingest.outcome import Ingested
    from zync.operate.check import Checked
    from zync.operate.decide import Action, Undecided
    from zync.operate.diagnosis import Diagnosis
    from zync.operate.diff import TopicDiff
    from zync.operate.explain import Pipeline
    from zync.operate.maintain import Maintained
    from zync.operate.replay import Replayed
    from zync.operate.status import Status
    from zync.operate.txn import Transaction
    from zync.operate.verify.claim import Claim
    from zync.raw.append import Appended
    from zync.sync.outcome import Outcome
    from zync.sync.progress import Progress, Report


_LINE_SECONDS = 10.0
"""How often a line tells how far a large sync is, where there is no terminal."""


class Output(ABC):
    """Prints results to standard output, progress and errors to standard error.

    Lines on standard error have the format of `--log-format`; `--json` does not change them.
    """

    def __init__(self, *, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        self._bar: Bar | None = None
        self._shown: Progress | None = None

    def _line(self, stream: TextIO, text: str) -> None:
        stream.write(text + "\n")
        stream.flush()

    # ----------------------------------------------------------------------------------------------- standard error

    def progress(self, text: str, level: str = "info", **values: Any) -> None:
        """Prints a line about the progress of work; `values` are its fields in a JSON log."""
        self._line(self.err, log_line(level, text, values) if logs_as_json() else text)

    def spark_starts(self) -> None:
        """Prints, where a person waits at a terminal, that Spark's start takes some seconds."""
        if self.err.isatty():
            self.progress("starting Spark takes some seconds")

    @contextmanager
    def showing_progress(self) -> Iterator["Report"]:
        """Yields `syncing`; at the end of the context, however that ends, a terminal has no bar any more."""
        try:
            yield self.syncing
        finally:
            self.syncing(None)

    def syncing(self, progress: "Progress | None") -> None:
        """Shows how far a large sync is; None: it has ended.

        On a terminal it is a bar, which goes away. Otherwise it is a line for each stage, and every ten seconds.
        """
        if self.err.isatty() and not logs_as_json():
            from zync.cli.bar import Bar

            if progress is None:
                if self._bar:
                    self._bar.close()
                self._bar = None
                return
            self._bar = self._bar or Bar(self.err)
            self._bar.show(progress)
            return
        shown, self._shown = self._shown, progress
        if progress is None:
            return
        if shown and shown.stage == progress.stage and progress.seconds - shown.seconds < _LINE_SECONDS:
            self._shown = shown
            return
        values = {key: value for key, value in asdict(progress).items() if value is not None}
        self.progress(str(progress), event="progress", **values)

    def synced_partly(self, outcome: "Outcome") -> None:
        """Prints the outcome of one of the syncs that a large backlog takes."""
        from zync.sync.outcome import describe

        self.progress(describe(outcome), event="sync", **vars(outcome))

    def error(self, message: str, traceback: str = "", code: str = ZyncError.code) -> None:
        """Prints an error as a line, or its traceback.

        With --log-format json the line has the error's `code`; as text only a traceback shows it.
        """
        if logs_as_json():
            values = {"code": code, "traceback": traceback} if traceback else {"code": code}
            self._line(self.err, log_line("error", message, values))
            return
        if traceback:
            self._line(self.err, f"{traceback.rstrip()} [{code}]")
            return
        red, reset = ("\x1b[31m", "\x1b[0m") if self.err.isatty() else ("", "")
        self._line(self.err, f"{red}zync: {message}{reset}")

    def serving_metrics(self, address: str) -> None:
        """Prints where metrics are served."""
        self.progress(f"metrics at http://{address}/metrics", event="metrics", address=address)

    def committed(self, appended: "Appended") -> None:
        """Prints a commit of `sync-from` to raw."""
        self.progress(
            f"committed {amount(appended.rows, 'record')} ({byte_size(appended.num_bytes)}) "
            f"from seqno {appended.first_seqno}",
            event="commit",
            records=appended.rows,
            bytes=appended.num_bytes,
            first_seqno=appended.first_seqno,
            seconds=round(appended.seconds, 3),
        )

    def delivered_so_far(self, delivered: "Delivered") -> None:
        """Prints what `sync-to kafka` has delivered after each Kafka transaction."""
        self.progress(delivered_text(delivered), event="delivered", **asdict(delivered))

    def delivered_batch(self, batch: "Batch") -> None:
        """Prints what `sync-to tables` has delivered by a batch."""
        rows = ", ".join(f"{topic} {count:,}" for topic, count in batch.rows.items()) or "none"
        text = f"delivered through sync {batch.sync:,}, rows: {rows}, in {batch.seconds:.1f} s"
        self.progress(text, event="delivered", **asdict(batch))

    def compacted(self, count: int, total: int) -> None:
        """Prints how many groups of files `maintain` has compacted."""
        self.progress(f"compacted {count:,} of {total:,}")

    def part(self, part: str, level: str, text: str, values: Mapping[str, Any]) -> None:
        """Prints a line of a part of `zync run`."""
        self.progress(text if logs_as_json() else f"{part:9} {text}", level=level, part=part, **values)

    # ---------------------------------------------------------------------------------------------- standard output

    def rows(self, rows: Iterable[Mapping[str, Any] | Verbatim]) -> None:
        """Prints rows as JSON Lines, with and without `--json`."""
        for row in rows:
            self._line(self.out, to_json(row))

    def followed(self, outcome: "Outcome") -> None:
        """Prints the outcome of one of the syncs of `sync --follow`."""
        self.synced(outcome)

    @abstractmethod
    def initialized(self, files: list[str]) -> None:
        """Prints the files that `init` wrote, the config's schema last."""

    @abstractmethod
    def loaded(self, appended: "Appended") -> None:
        """Prints what `load` appended to raw."""

    @abstractmethod
    def ingested(self, ingested: "Ingested") -> None:
        """Prints the result of `sync-from`."""

    @abstractmethod
    def synced(self, outcome: "Outcome") -> None:
        """Prints the outcome of a sync."""

    @abstractmethod
    def delivered(self, delivered: "Delivered") -> None:
        """Prints the result of `sync-to kafka`."""

    @abstractmethod
    def delivered_snapshot(self, snapshot: "Snapshot | None") -> None:
        """Prints the newest snapshot at the end of `sync-to tables`; None: nothing was delivered yet."""

    @abstractmethod
    def snapshot(self, snapshot: "Snapshot", views: list[str] | None) -> None:
        """Prints a snapshot; `views` are the statements that make views of it, if these were asked for."""

    @abstractmethod
    def status(self, status: "Status") -> None:
        """Prints how far raw and staging are."""

    @abstractmethod
    def clear(self) -> None:
        """Separates a result from the previous result that it replaces."""

    @abstractmethod
    def query(self, result: "DataFrame") -> None:
        """Prints the rows of a query."""

    @abstractmethod
    def explain(self, pipeline: "Pipeline") -> None:
        """Prints what a config means."""

    @abstractmethod
    def check(self, checked: "Checked", table: str | None) -> None:
        """Prints the result of `check`; `table` is the raw that was synced in different cuts."""

    @abstractmethod
    def diagnosis(self, diagnosis: "Diagnosis") -> None:
        """Prints what `doctor` found."""

    @abstractmethod
    def verified(self, claims: list["Claim"]) -> None:
        """Prints which claims about raw and staging hold."""

    @abstractmethod
    def replayed(self, replayed: "Replayed", into: str, beside: str) -> None:
        """Prints the result of a replay into the staging `into`, whose rules were compared with those of `beside`."""

    @abstractmethod
    def differences(self, topics: dict[str, "TopicDiff"]) -> None:
        """Prints how two stagings differ, by topic."""

    @abstractmethod
    def maintained(self, maintained: "Maintained") -> None:
        """Prints what `maintain` did."""

    @abstractmethod
    def transactions(self, transactions: list["Transaction"]) -> None:
        """Prints transactions that are not simply done."""

    @abstractmethod
    def transaction(self, transaction: dict[str, Any]) -> None:
        """Prints one transaction with its records."""

    @abstractmethod
    def decided(self, action: "Action", candidates: "Undecided") -> None:
        """Prints which transactions a decision is about, and which were left alone."""

    @abstractmethod
    def set_aside(self, groups: list[dict[str, Any]]) -> None:
        """Prints what is set aside, by error."""

    @abstractmethod
    def broker_started(self, servers: str, folder: "Path") -> None:
        """Prints the address of the development broker that was started."""

    @abstractmethod
    def broker_stopped(self, *, stopped: bool, folder: "Path") -> None:
        """Prints whether a development broker ran and was stopped."""

    @abstractmethod
    def broker_status(self, servers: str | None, pid: int | None, folder: "Path") -> None:
        """Prints whether a development broker runs (`pid` is not None), and where."""


def delivered_text(delivered: "Delivered") -> str:
    """Returns a line about the transactions that `sync-to kafka` has delivered."""
    rows = ", ".join(f"{topic} {count:,}" for topic, count in delivered.rows.items()) or "none"
    through = f"; through seqno {delivered.seqno:,}" if delivered.seqno else ""  # unknown if no broker answered
    return f"delivered {amount(delivered.transactions, 'transaction')}, rows: {rows}{through}"
