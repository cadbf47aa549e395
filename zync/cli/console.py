"""Results as text for people."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from zync.cli.output import Output, delivered_text
from zync.log import logs_as_json
from zync.text import amount, byte_size, printable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from zync.deliver.kafka.delivery import Delivered
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


class ConsoleOutput(Output):
    """Prints results as text."""

    def text(self, text: str) -> None:
        """Prints text as it is."""
        self._line(self.out, text)

    def initialized(self, files: list[str]) -> None:
        *project, schema = files
        self.text(
            f"wrote {', '.join(project)}; next: zync check\n{schema}: by it your editor completes and checks zync.yaml"
        )

    def loaded(self, appended: "Appended") -> None:
        last = (appended.first_seqno or 1) + appended.rows - 1
        seqnos = f", seqno {appended.first_seqno} to {last}" if appended.rows else ""
        self.text(f"loaded {amount(appended.rows, 'record')}{seqnos}")

    def ingested(self, ingested: "Ingested") -> None:
        lag = "unknown" if ingested.lag is None else f"{ingested.lag:,}"
        self.text(
            f"{amount(ingested.records, 'record')}, {byte_size(ingested.num_bytes)} in {ingested.seconds:.1f} s "
            f"({ingested.rate:,.0f} records/s), {amount(ingested.commits, 'commit')}, lag {lag}"
        )

    def synced(self, outcome: "Outcome") -> None:
        from zync.sync.outcome import describe

        self.text(describe(outcome))

    def followed(self, outcome: "Outcome") -> None:
        """Prints the outcome of one of the syncs of `sync --follow`; with JSON logs as one of their lines."""
        if logs_as_json():
            self.synced_partly(outcome)
        else:
            self.synced(outcome)

    def delivered(self, delivered: "Delivered") -> None:
        self.text(
            f"{delivered_text(delivered)}, in {amount(delivered.commits, 'Kafka transaction')}, "
            f"{delivered.seconds:.1f} s ({delivered.rate:,.0f} rows/s)"
        )

    def delivered_snapshot(self, snapshot: "Snapshot | None") -> None:
        self.text(_snapshot_text(snapshot) if snapshot else "nothing was delivered yet")

    def snapshot(self, snapshot: "Snapshot", views: list[str] | None) -> None:
        self.text(_snapshot_text(snapshot) if views is None else "\n".join(views))

    def status(self, status: "Status") -> None:
        from zync.operate.status import describe

        self.text(describe(status))

    def clear(self) -> None:
        """Clears a terminal, or prints an empty line."""
        self.text("\x1b[H\x1b[2J" if self.out.isatty() else "")

    def query(self, result: "DataFrame") -> None:
        from zync.operate.query import table_of

        self.text(table_of(result))

    def explain(self, pipeline: "Pipeline") -> None:
        from zync.operate.explain import describe

        self.text(describe(pipeline))

    def check(self, checked: "Checked", table: str | None) -> None:
        lines = [f"warning: {text}" for text in checked.warnings]
        if difference := checked.difference:
            lines.append(
                f"{difference.topic}/{difference.offset} depends on how raw is cut: {difference.at_once} in one sync, "
                f"{difference.in_parts} in several; a rule must make of a transaction what only that transaction says"
            )
        else:
            cuts = f", and {table} gives the same in any cut" if table else ""
            lines.append(f"the config and its rules can run{cuts}")
        self.text("\n".join(lines))

    def diagnosis(self, diagnosis: "Diagnosis") -> None:
        from zync.operate.doctor import describe

        self.text(describe(diagnosis.findings, " and ".join(diagnosis.subjects)))

    def verified(self, claims: list["Claim"]) -> None:
        from zync.operate.verify import describe

        self.text(describe(claims))

    def replayed(self, replayed: "Replayed", into: str, beside: str) -> None:
        start = f" from seqno {replayed.start:,}, where raw starts," if replayed.start > 1 else ""
        text = f"{into}: {amount(replayed.transactions, 'transaction')}{start} up to seqno {replayed.head:,}"
        if replayed.different:
            text += f"; other rows than in {beside} may come from what differs: {', '.join(replayed.different)}"
        self.text(text)

    def differences(self, topics: dict[str, "TopicDiff"]) -> None:
        from zync.operate.diff import describe_diff

        self.text(describe_diff(topics))

    def maintained(self, maintained: "Maintained") -> None:
        from zync.operate.maintain import describe

        self.text(describe(maintained))

    def transactions(self, transactions: list["Transaction"]) -> None:
        for item in transactions:
            topics = ", ".join(f"{name} {count}" for name, count in item.topics.items())
            awaited = f" behind {item.waits_for}" if item.waits_for else ""
            reason = f": {item.reason}" if item.reason else f": whole, waits for its turn{awaited}" if item.held else ""
            since = f"{item.since:%Y-%m-%d %H:%M:%S}" if item.since else "?"
            decision = f" (decided: {item.decided}; the next sync acts on it)" if item.decided else ""
            line = f"{item.state}  {item.id}  since {since}  seqno {item.seqno}  {topics}{reason}{decision}"
            self.text(printable(line))
        if not transactions:
            self.text("none")

    def transaction(self, transaction: dict[str, Any]) -> None:
        from zync.operate.txn_show import describe

        self.text(describe(transaction))

    def decided(self, action: "Action", candidates: "Undecided") -> None:
        chosen = candidates.chosen
        count = amount(len(chosen), "transaction")
        text = f"{action}: {count} on record; the next sync acts on it" if chosen else "none"
        for reason, skipped in (
            ("they are in flight again", candidates.in_flight_again),
            ("a decision about them is on record that no sync has met", candidates.decided),
        ):
            if skipped:
                text += f"; left alone, as {reason}: {', '.join(skipped)}"
        self.text(text)

    def set_aside(self, groups: list[dict[str, Any]]) -> None:
        from zync.operate.dlq import describe

        for group in groups:
            self.text(printable(describe(group)))
        if not groups:
            self.text("nothing is set aside")

    def broker_started(self, servers: str, folder: Path) -> None:
        self.text(f"Kafka answers at {servers} (for development only: one node, no security; data in {folder})")

    def broker_stopped(self, *, stopped: bool, folder: Path) -> None:
        self.text("stopped" if stopped else f"no broker ran {_location(folder)}")

    def broker_status(self, servers: str | None, pid: int | None, folder: Path) -> None:
        self.text(f"runs at {servers} (pid {pid})" if pid else f"no broker runs {_location(folder)}")


def _snapshot_text(snapshot: "Snapshot") -> str:
    tables = ", ".join(f"{topic} version {version}" for topic, version in snapshot.versions.items())
    return f"sync {snapshot.sync:,} ({snapshot.at:%Y-%m-%dT%H:%M:%S.%f}Z): {tables}"


def _location(folder: Path) -> str:
    return f"in {folder.absolute()} (--folder names another)"
