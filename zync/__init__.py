"""zync lands the transactions of Kafka topics in a lake whole, exactly once.

Python code can do by the names below what the commands do to a lake. A sync of raw into staging, by `zync.yaml`:

    import zync

    config = zync.load_config("zync.yaml")
    outcome = zync.sync_once(config, "lake/raw", "lake/staging")
    print(outcome.transactions, outcome.in_flight)

Names are loaded at their first use, so that `import zync` costs nothing. In `spark-submit` or a notebook zync uses the
running Spark application.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zync.config.model import Config
    from zync.config.storage import Storage
    from zync.deliver.kafka.delivery import Delivered, Delivery, sync_to_kafka
    from zync.deliver.tables.batch import Batch
    from zync.deliver.tables.delivery import sync_to_tables
    from zync.deliver.tables.snapshots import Snapshot
    from zync.errors import (
        CommitRefusedError,
        CommitUnknownError,
        ConflictError,
        DataError,
        FormatError,
        GapError,
        OwnedError,
        TableLostError,
        UsageError,
        ZyncError,
    )
    from zync.ingest.consume import Ingest, sync_from_kafka
    from zync.ingest.outcome import Ingested
    from zync.ingest.start_position import Begin
    from zync.lake.storage import use as use_storage
    from zync.operate.cat import cat
    from zync.operate.decide import decide, undecided
    from zync.operate.diff import diff
    from zync.operate.explain import explain
    from zync.operate.maintain import Trimming, maintain
    from zync.operate.query import query, query_tables
    from zync.operate.replay import replay
    from zync.operate.status import status
    from zync.operate.txn import transactions as list_transactions
    from zync.operate.txn_show import show as show_transaction
    from zync.operate.verify import verify
    from zync.project.load import load as load_config
    from zync.raw.append import Appended
    from zync.raw.jsonl import load as load_jsonl
    from zync.spark.session import session as spark_session
    from zync.sync.outcome import Outcome
    from zync.sync.process import follow, sync_once
    from zync.sync.syncer import Syncer

__all__ = [
    "Appended",
    "Batch",
    "Begin",
    "cat",
    "CommitRefusedError",
    "CommitUnknownError",
    "Config",
    "ConflictError",
    "DataError",
    "decide",
    "Delivered",
    "Delivery",
    "diff",
    "explain",
    "follow",
    "FormatError",
    "GapError",
    "Ingest",
    "Ingested",
    "list_transactions",
    "load_config",
    "load_jsonl",
    "maintain",
    "Outcome",
    "OwnedError",
    "query",
    "query_tables",
    "replay",
    "show_transaction",
    "Snapshot",
    "spark_session",
    "status",
    "Storage",
    "sync_from_kafka",
    "sync_once",
    "sync_to_kafka",
    "sync_to_tables",
    "Syncer",
    "TableLostError",
    "Trimming",
    "undecided",
    "UsageError",
    "use_storage",
    "verify",
    "ZyncError",
    "__version__",
]

_EXPORTS = {
    "Config": "zync.config.model",
    "load_config": "zync.project.load:load",
    "Storage": "zync.config.storage",
    "use_storage": "zync.lake.storage:use",
    "spark_session": "zync.spark.session:session",
    # Kafka, or files, to raw
    "Ingest": "zync.ingest.consume",
    "Ingested": "zync.ingest.outcome",
    "Begin": "zync.ingest.start_position",
    "sync_from_kafka": "zync.ingest.consume",
    "Appended": "zync.raw.append",
    "load_jsonl": "zync.raw.jsonl:load",
    # raw to staging
    "Outcome": "zync.sync.outcome",
    "Syncer": "zync.sync.syncer",
    "follow": "zync.sync.process",
    "sync_once": "zync.sync.process",
    # staging to Kafka and tables
    "Delivered": "zync.deliver.kafka.delivery",
    "Delivery": "zync.deliver.kafka.delivery",
    "sync_to_kafka": "zync.deliver.kafka.delivery",
    "Batch": "zync.deliver.tables.batch",
    "Snapshot": "zync.deliver.tables.snapshots",
    "sync_to_tables": "zync.deliver.tables.delivery",
    # operators
    "cat": "zync.operate.cat",
    "decide": "zync.operate.decide",
    "diff": "zync.operate.diff",
    "explain": "zync.operate.explain",
    "maintain": "zync.operate.maintain",
    "Trimming": "zync.operate.maintain",
    "query": "zync.operate.query",
    "query_tables": "zync.operate.query",
    "replay": "zync.operate.replay",
    "show_transaction": "zync.operate.txn_show:show",
    "status": "zync.operate.status",
    "list_transactions": "zync.operate.txn:transactions",
    "undecided": "zync.operate.decide",
    "verify": "zync.operate.verify",
    # errors
    "CommitRefusedError": "zync.errors",
    "CommitUnknownError": "zync.errors",
    "ConflictError": "zync.errors",
    "DataError": "zync.errors",
    "FormatError": "zync.errors",
    "GapError": "zync.errors",
    "OwnedError": "zync.errors",
    "TableLostError": "zync.errors",
    "UsageError": "zync.errors",
    "ZyncError": "zync.errors",
}
"""The module of each public name, as `module`, or as `module:name` if the module has it by another name."""


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used (PEP 562)."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - takes 30 ms

        return version("zync")
    if name not in _EXPORTS:
        msg = f"module 'zync' has no attribute {name!r}"
        raise AttributeError(msg)
    module, _, attribute = _EXPORTS[name].partition(":")
    return getattr(import_module(module), attribute or name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
