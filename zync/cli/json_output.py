"""Results as JSON for programs (`--json`): an object, or an object a line."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zync.cli.output import Output
from zync.text import Verbatim, to_json

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


class JsonOutput(Output):
    """Prints results as JSON."""

    def _object(self, values: Mapping[str, Any]) -> None:
        self._line(self.out, to_json(values))

    def initialized(self, files: list[str]) -> None:
        self._object({"files": files})

    def loaded(self, appended: "Appended") -> None:
        self._object({"records": appended.rows, "bytes": appended.num_bytes, "first_seqno": appended.first_seqno})

    def ingested(self, ingested: "Ingested") -> None:
        values = {"bytes" if key == "num_bytes" else key: value for key, value in vars(ingested).items()}
        self._object(values | {"rate": round(ingested.rate)})

    def synced(self, outcome: "Outcome") -> None:
        self._object(vars(outcome))

    def delivered(self, delivered: "Delivered") -> None:
        self._object(asdict(delivered) | {"rate": round(delivered.rate)})

    def delivered_snapshot(self, snapshot: "Snapshot | None") -> None:
        self._object(asdict(snapshot) if snapshot else {})

    def snapshot(self, snapshot: "Snapshot", views: list[str] | None) -> None:
        self._object({**asdict(snapshot), **({} if views is None else {"sql": views})})

    def status(self, status: "Status") -> None:
        from zync.operate.status import as_dict

        self._object(as_dict(status))

    def clear(self) -> None:
        """Prints nothing: each result is a line."""

    def query(self, result: "DataFrame") -> None:
        from zync.operate.query import rows_of

        self.rows(Verbatim(row) for row in rows_of(result))

    def explain(self, pipeline: "Pipeline") -> None:
        self._object(asdict(pipeline))

    def check(self, checked: "Checked", table: str | None) -> None:  # noqa: ARG002 - only people are told its name
        difference = checked.difference
        self._object(
            {"ok": not difference, "warnings": checked.warnings, "difference": difference and vars(difference)}
        )

    def diagnosis(self, diagnosis: "Diagnosis") -> None:
        from zync.operate.doctor import as_dict

        self._object(as_dict(diagnosis.findings))

    def verified(self, claims: list["Claim"]) -> None:
        holds = not any(claim.violations for claim in claims)
        self._object({"ok": holds, "claims": [asdict(claim) for claim in claims]})

    def replayed(self, replayed: "Replayed", into: str, beside: str) -> None:
        self._object(asdict(replayed))

    def differences(self, topics: dict[str, "TopicDiff"]) -> None:
        self._object({"same": not topics, "topics": {topic: asdict(diff) for topic, diff in topics.items()}})

    def maintained(self, maintained: "Maintained") -> None:
        self._object(asdict(maintained))

    def transactions(self, transactions: list["Transaction"]) -> None:
        for item in transactions:
            values = {name: value for name, value in asdict(item).items() if name not in ("id", "so_far")}
            self._object({"txn": item.id, **values})

    def transaction(self, transaction: dict[str, Any]) -> None:
        self._object(transaction)

    def decided(self, action: "Action", candidates: "Undecided") -> None:
        values: dict[str, object] = {"decision": action, "transactions": [*candidates.chosen]}
        if candidates.in_flight_again:
            values["in_flight_again"] = candidates.in_flight_again
        if candidates.decided:
            values["decided"] = candidates.decided
        self._object(values)

    def set_aside(self, groups: list[dict[str, Any]]) -> None:
        self.rows(groups)

    def broker_started(self, servers: str, folder: Path) -> None:
        self._object({"bootstrap_servers": servers})

    def broker_stopped(self, *, stopped: bool, folder: Path) -> None:
        self._object({"stopped": stopped})

    def broker_status(self, servers: str | None, pid: int | None, folder: Path) -> None:
        self._object({"bootstrap_servers": servers, "running": pid is not None, "pid": pid})
