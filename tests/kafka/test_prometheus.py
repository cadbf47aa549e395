"""What a real Prometheus makes of `--metrics`: promtool has nothing against it, and each panel shows something."""

import json
import math
import subprocess
import time
import urllib.error
from pathlib import Path

from tests.conftest import BRISK, TopicMaker, produce, start
from tests.kafka.conftest import Lake, get, wait_until
from tests.prometheus import RunningPrometheus, program
from zync.kafka.dev_broker import free_port

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "zync.json"
CONFIG = """lake: lake
kafka: {{bootstrap.servers: "{broker}"}}
topics: {{{topic}: {{id: "value:txn", as: t}}}}
transactions: {{done: "count(*) = max(value:n::int)"}}
outputs: [{{topic: out, sql: out.sql}}]
limits: {{max_quarantined: 100000}}
deliver: {{kafka: {{topics: {{out: {{as: delivered-{topic}}}}}}}}}
{brisk}"""


def test_prometheus_takes_the_metrics_and_each_panel_of_the_dashboard_has_figures(
    lake: Lake, topic: TopicMaker
) -> None:
    name, port = topic(), free_port()
    (lake.folder / "zync.yaml").write_text(CONFIG.format(broker=lake.broker, topic=name, brisk=BRISK))
    (lake.folder / "out.sql").write_text("SELECT seqno, value:n::int AS n FROM t")
    prometheus = RunningPrometheus(lake.folder, (port,))
    run = start("run", "--commit-every", "1s", "--metrics", f"localhost:{port}", cwd=lake.folder)
    panels = {
        (panel["title"], one["expr"].replace("$job", ".*").replace("$__rate_interval", "20s"))
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for one in panel.get("targets", ())
    }
    sent = 0

    def produced() -> None:
        nonlocal sent
        sent += 1
        whole, open_ = {"txn": f"{sent}", "n": 1}, {"txn": f"open {sent}", "n": 2}
        produce(lake.broker, [(name, 0, whole), (name, 0, open_), (name, 0, b"no JSON")])

    def ready() -> bool:
        try:
            return get(port, "/readyz")[0] == 200
        except urllib.error.URLError:
            return False

    def shown() -> bool:
        time.sleep(0.5)
        produced()
        for panel in list(panels):
            if found := prometheus.ask(panel[1]):
                assert not any(math.isinf(one) for one in found), panel
                panels.difference_update({panel} if not all(math.isnan(one) for one in found) else ())
        return not panels

    try:
        produced()
        wait_until(ready, 120)
        prometheus.start()
        try:
            wait_until(shown, 90)
        except AssertionError as error:
            raise AssertionError(panels) from error
        text = get(port, "/metrics")[1]
        done = subprocess.run(
            [program("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    finally:
        run.terminate()
        prometheus.stop()
        run.wait(60)
