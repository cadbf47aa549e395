"""Quick looks: `zync cat` and `zync status`."""

import json
import signal
import time
from pathlib import Path
from typing import Any

from tests.conftest import start, zync


def test_cat_shows_rows_in_order_and_keeps_text_as_it_was(tmp_path: Path) -> None:
    lines = [
        {"topic": "b", "key": "k", "value": '{"a": 1.50, "b": [1e2]}', "headers": [["h", "v"]]},
        {"topic": "a", "key": {"id": 1}, "value": "plain"},
        {"topic": "a", "key": None, "value": {"base64": "/w=="}},
        {"topic": "a", "value": '{"twice":1,"twice":2}'},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    zync("load", "raw", "in.jsonl", cwd=tmp_path)
    shown = zync("cat", "raw", cwd=tmp_path).stdout.splitlines()
    assert '"value":{"a": 1.50, "b": [1e2]}' in shown[0]
    rows = [json.loads(line) for line in shown]
    assert [row["seqno"] for row in rows] == [1, 2, 3, 4]
    assert rows[0]["headers"] == [["h", "v"]]
    assert (rows[1]["key"], rows[1]["value"]) == ({"id": 1}, "plain")
    assert (rows[2]["key"], rows[2]["value"]) == (None, {"base64": "/w=="})
    assert rows[3]["value"] == '{"twice":1,"twice":2}'
    picked = zync("cat", "raw", "--topic", "a", "--since", "3", "--limit", "1", cwd=tmp_path).stdout
    assert json.loads(picked)["seqno"] == 3


def test_status_may_be_watched(demo: Path) -> None:
    process = start("status", "--watch", "--json", cwd=demo)
    log = next(demo.glob("status---watch-*.log"))

    def shows(head: int | None) -> None:
        until = time.monotonic() + 60
        while not any((json.loads(line)["raw"] or {}).get("head") == head for line in log.read_text().splitlines()):
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)

    try:
        shows(None)
        zync("load", "raw", "consume-1.jsonl", cwd=demo)
        shows(3)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    finally:
        process.kill()


def test_status_tells_what_is_where(demo: Path, warm: Any) -> None:
    warm("load", "raw", "consume-1.jsonl", cwd=demo)
    warm("sync", "raw", "staging", cwd=demo)
    said = json.loads(warm("status", "--json", cwd=demo).stdout)
    assert said["raw"]["positions"] == {"menu/0": 1, "order/0": 2}
    assert (said["staging"]["cursor"], said["staging"]["head"], said["staging"]["behind_raw"]) == (1, 3, 0)
    assert said["in_flight"]["count"] == 1
    assert said["in_flight"]["oldest"]["txn"] == "10001"
    assert "in flight 1, expired 0; oldest 10001" in warm("status", cwd=demo).stdout
    answer = warm("query", "SELECT txn FROM `order` ORDER BY record_seqno", "--json", cwd=demo).stdout.splitlines()
    assert [json.loads(line)["txn"] for line in answer] == ["10000", "10001"]
