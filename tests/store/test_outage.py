"""A store that hangs or is away: processes that go on for ever wait for it, and say so at once at `/readyz`."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import BRISK, TopicMaker, zync
from tests.kafka.conftest import get, wait_until
from tests.store.choice import proxy_of_store
from tests.store.pipeline import PARTS, Pipeline
from tests.store.proxy import Outage, Request, running_proxy
from tests.store.s3 import BUCKET

SECONDS = int(os.environ.get("ZYNC_TEST_STORE_SECONDS", "0")) // 10
"""How long the store is away, at least."""


def readiness(port: int) -> tuple[int, str]:
    """What `/readyz` answers: within a second, on a machine that has the time."""
    began = time.monotonic()
    answer = get(port, "/readyz")
    assert time.monotonic() - began < 3
    return answer


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("s3")
def test_while_the_store_is_away_each_process_says_so_and_then_goes_on(
    topic: TopicMaker, environment: dict[str, str], tmp_path: Path
) -> None:
    pipeline = Pipeline(tmp_path, topic, "storage: {timeout: 4s, retry_timeout: 4s}\n")

    def events_of_store(part: str) -> list[str]:  # of its lease the process may say that it is late, after it
        return [event for event in pipeline.events(part) if event.startswith("store_")]

    with proxy_of_store(environment) as (proxy, variables):
        proxy.rule = outage = Outage()
        processes = {part: pipeline.start(part, variables) for part in PARTS}
        try:
            pipeline.send()
            wait_until(pipeline.is_delivered, 240)
            for hang in (True, False):
                wait_until(lambda: all(readiness(port)[0] == 200 for port in pipeline.ports.values()))
                outage.begin(hang=hang)
                began = time.monotonic()
                pipeline.send()

                def all_say_so() -> bool:
                    answers = [readiness(port) for port in pipeline.ports.values()]
                    return all(code == 503 and "the store" in text for code, text in answers)

                wait_until(all_say_so, 90)
                print(f"hang {hang}: all say so after {time.monotonic() - began:.0f} s")
                if SECONDS or not hang:  # until Spark gives up what hangs takes a minute or two
                    wait_until(lambda: all(events_of_store(part)[-1:] == ["store_away"] for part in PARTS), 240)
                    print(f"all wait after {time.monotonic() - began:.0f} s")
                while time.monotonic() - began < SECONDS:
                    assert all_say_so()
                    time.sleep(1)
                outage.end()
                wait_until(pipeline.is_delivered, 120)
                assert {part: process.poll() for part, process in processes.items()} == dict.fromkeys(PARTS)
            for process in processes.values():
                process.send_signal(signal.SIGTERM)
            assert [process.wait(60) for process in processes.values()] == [0, 0, 0], pipeline.log()
        finally:
            outage.end()
            for process in processes.values():
                process.kill()
    for part in PARTS:
        pairs = ["store_away", "store_back"]
        assert events_of_store(part) in (pairs, pairs * 2), pipeline.log()
    pipeline.assert_each_row_is_there_once()
    zync("verify", cwd=tmp_path, env=dict(os.environ))  # the config sets bounds for the process that reads it


@pytest.mark.skipif(not SECONDS, reason="it waits for a minute and more: make test-store")
@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("GET", ("query", "SELECT count(value) FROM raw")),
        ("PUT", ("sync", "raw", "staging")),
        ("PUT", ("sync-to", "tables", "staging", "--until-caught-up")),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_spark_gives_up_within_two_minutes_a_store_that_never_answers(
    method: str, words: tuple[str, ...], environment: dict[str, str], demo: Path
) -> None:
    config = (demo / "zync.yaml").read_text().replace("lake: ./lake", f"lake: s3://{BUCKET}/{demo.parent.name}")
    (demo / "zync.yaml").write_text(f"{config}\ndeliver: {{tables: {{}}}}\n{BRISK}")
    zync("load", "raw", "consume-1.jsonl", cwd=demo, env=dict(os.environ))
    if words[0] == "sync-to":
        zync("sync", "raw", "staging", cwd=demo)
    over, held_at = threading.Event(), list[float]()

    def hold(request: Request, _: Callable[[], None]) -> None:
        if request.method == method and "aws-sdk-java" in request.headers.get("User-Agent", ""):
            held_at.append(time.monotonic())
            over.wait(400)

    with running_proxy(environment["AWS_ENDPOINT_URL"]) as proxy:
        proxy.rule = hold
        done = zync(*words, cwd=demo, check=False, env={**os.environ, "AWS_ENDPOINT_URL": proxy.url})
        seconds = time.monotonic() - held_at[0]
        over.set()
    assert done.returncode == 1, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "does not answer" in done.stderr
    assert seconds < 120
