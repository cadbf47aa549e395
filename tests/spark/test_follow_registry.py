"""`zync sync --follow` reads on where the schema registry fails for a moment."""

import json
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from tests.failing_registry import Answer, after, gives, resets, serving, status, stops_halfway
from tests.registry import avro, framed
from tests.spark.conftest import Pipeline
from tests.spark.test_formats import put, record
from zync.config.model import Formats, RegistryAccess
from zync.errors import ZyncError
from zync.formats.registry import RegistryAwayError
from zync.sync.process import follow

ORDER = record("shop.Order", txn="int", n="int", x="int")


class Follower:
    """A `sync --follow` of a pipeline with Avro, as a thread."""

    def __init__(self, pipeline: Pipeline, url: str) -> None:
        pipeline.change(
            registry=RegistryAccess(url, basic_auth="me:secret", timeout=timedelta(seconds=2)),
            formats=Formats(value="avro"),
        )
        pipeline.rules(out="SELECT seqno, value:x::int AS x FROM a")
        self.pipeline, self.stop = pipeline, threading.Event()
        self.seen: list[Any] = []
        self.error: ZyncError | None = None
        self.thread = threading.Thread(target=self._follow)

    def __enter__(self) -> "Follower":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(300)

    def _follow(self) -> None:
        pipeline = self.pipeline
        try:
            follow(pipeline.config, pipeline.raw, str(pipeline.staging), self.stop, self.seen.append)
        except ZyncError as error:
            self.error = error

    def puts(self, number: int) -> None:
        """Puts a record into raw whose schema has that id, and waits for what becomes of it."""
        put(self.pipeline, ("a", None, framed(number, avro(ORDER, {"txn": number, "n": 1, "x": number}))))
        until, syncs = time.monotonic() + 300, len(self.seen)
        while self.thread.is_alive() and len(self.seen) == syncs:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_a_sync_that_follows_outlasts_a_registry_that_fails_for_a_moment(pipeline: Pipeline) -> None:
    order = gives(json.dumps(ORDER))
    failures: list[list[Answer]] = [[resets, status(500)], [stops_halfway, status(429)], [after(1, status(503))]]
    with serving([answer for group in failures for answer in (*group, order)]) as (url, asked):
        with Follower(pipeline, url) as follower:
            for number in range(1, 4):
                follower.puts(number)
        assert follower.error is None
    assert asked == [f"/schemas/ids/{number}" for number in (1, 1, 1, 2, 2, 2, 3, 3)]
    assert pipeline.values() == [{"x": number} for number in range(1, 4)]
    assert not pipeline.of("quarantined")


@pytest.mark.parametrize("failure", [resets, after(3, status(503))])
def test_a_registry_that_stays_away_ends_it_and_nothing_is_lost(pipeline: Pipeline, failure: Answer) -> None:
    with serving([failure]) as (url, _):
        with Follower(pipeline, url) as follower:
            follower.puts(1)
        assert isinstance(follower.error, RegistryAwayError)
        assert "secret" not in str(follower.error)
    with serving([gives(json.dumps(ORDER))]) as (url, _):
        pipeline.change(registry=RegistryAccess(url))
        assert pipeline.sync().transactions == 1
    assert pipeline.values() == [{"x": 1}]
    assert not pipeline.of("quarantined")
