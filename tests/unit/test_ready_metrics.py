"""The metrics say what `/readyz` says, and that the store is away, also when raw cannot be read for it."""

from pathlib import Path

from prometheus_client import CollectorRegistry

from zync.deliver.metrics import KafkaDeliveryMetrics
from zync.ingest.metrics import IngestMetrics
from zync.ingest.outcome import Ingested
from zync.raw.table import ensure_raw
from zync.run.scrape import RunMetrics
from zync.sync.metrics import SyncMetrics


def names(registry: CollectorRegistry) -> set[str]:
    return {family.name for family in registry.collect()}


def test_a_part_is_ready_until_its_store_is_away() -> None:
    for metrics in (SyncMetrics(), KafkaDeliveryMetrics()):
        values = metrics.registry.get_sample_value
        assert (values("zync_ready"), values("zync_store_away")) == (1, 0)
        metrics.store_is_away = lambda: "the store of s3://bucket/raw has not answered for 12 s"
        assert (values("zync_ready"), values("zync_store_away")) == (0, 1)


def test_a_delivery_that_no_broker_takes_is_not_ready_and_its_store_is_there() -> None:
    metrics = KafkaDeliveryMetrics()
    metrics.refused()
    values = metrics.registry.get_sample_value
    assert (values("zync_ready"), values("zync_store_away")) == (0, 0)


def test_raw_is_not_read_for_metrics_while_its_store_is_away(tmp_path: Path) -> None:
    ensure_raw(str(tmp_path / "raw"))
    metrics = IngestMetrics()
    metrics.watch(Ingested(), str(tmp_path / "raw"))
    assert "zync_raw_head_seqno" in names(metrics.registry)
    metrics.store_is_away = lambda: "the store of s3://bucket/raw does not answer"
    metrics.watch(Ingested(), "s3://bucket/raw")
    assert "zync_raw_head_seqno" not in names(metrics.registry)
    assert {"zync_store_away", "zync_ingest_records", "zync_ingest_lag_seconds"} <= names(metrics.registry)


def test_run_has_the_readiness_of_its_parts_and_none_of_its_own() -> None:
    assert not {"zync_ready", "zync_store_away"} & names(RunMetrics(()).registry)


def test_each_kind_that_may_be_set_aside_is_counted_from_0() -> None:
    values = SyncMetrics().registry.get_sample_value
    for kind in ("late", "duplicate", "quarantined", "discarded", "ignored"):
        assert values("zync_sync_set_aside_total", {"kind": kind}) == 0
