"""The dashboard asks for metrics that there are."""

import json
import re
from pathlib import Path

from zync.deliver.metrics import KafkaDeliveryMetrics
from zync.ingest.metrics import IngestMetrics
from zync.ingest.outcome import Ingested
from zync.kafka.partition import Partition
from zync.raw.table import ensure_raw
from zync.run.scrape import RunMetrics
from zync.sync.metrics import SyncMetrics

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "zync.json"
ENDINGS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def test_every_panel_asks_for_metrics_that_are_exposed_and_each_is_asked_for(tmp_path: Path) -> None:
    ensure_raw(str(tmp_path / "raw"))
    ingest = IngestMetrics()
    ingest.watch(Ingested(), str(tmp_path / "raw"))
    ingest.behind({Partition("t", 0): 1}, {Partition("t", 0): 1.0})
    every = [ingest, SyncMetrics(), KafkaDeliveryMetrics(), RunMetrics(())]
    families = [family for one in every for family in one.registry.collect()]
    exposed = {one.name: {one.name + ending for ending in ENDINGS[one.type]} for one in families}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = {
        name for panel in panels for one in panel.get("targets", ()) for name in re.findall(r"zync_\w+", one["expr"])
    }
    assert asked <= set().union(*exposed.values())
    assert {family for family, names in exposed.items() if not names & asked} == set()
