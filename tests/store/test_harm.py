"""`zync run` on a lake in a store that fails in every way that a store can, and whose parts are killed meanwhile."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from tests.cdc.test_bank_run import part
from tests.conftest import TopicMaker, start, zync
from tests.kafka.conftest import wait_until
from tests.store.choice import proxy_of_store
from tests.store.pipeline import Pipeline
from tests.store.proxy import Answer, Broken, Request

SECONDS = int(os.environ.get("ZYNC_TEST_STORE_SECONDS", "20"))
"""How long the harm goes on."""
SEED = int(os.environ.get("ZYNC_TEST_SOAK_SEED", random.randrange(1 << 32)))
PARTS = ("sync-from kafka", "sync raw", "sync-to tables")
_ANSWERS = {
    "503": b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
    "500": b"<Error><Code>InternalError</Code></Error>",
}
_KINDS = ("503", "answer lost", "500", "reset", "slow")


class Harm:
    """Does harm to requests at random, and counts it."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.is_on, self.is_away = chance, False, False
        self.done: dict[str, int] = {}
        self.harmed = 0

    def __call__(self, request: Request, forward: Callable[[], None]) -> Answer | None:
        if self.is_away:
            self._break("away")
        if not self.is_on or self.chance.random() > 0.06:
            return None
        kind = _KINDS[self.harmed % len(_KINDS)]  # in turn, so that a short run has all of them
        self.harmed += 1
        if kind == "slow":
            self._count(kind)
            time.sleep(1)
            return None
        if kind in _ANSWERS:
            self._count(kind)
            return Answer(int(kind), _ANSWERS[kind])
        if kind == "answer lost":
            forward()
        self._break(kind)

    def _break(self, name: str) -> NoReturn:
        self._count(name)
        raise Broken

    def _count(self, name: str) -> None:
        self.done[name] = self.done.get(name, 0) + 1


@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.usefixtures("s3")
def test_whatever_the_store_does_each_row_lands_once(
    topic: TopicMaker, environment: dict[str, str], tmp_path: Path
) -> None:
    pipeline, chance = Pipeline(tmp_path, topic), random.Random(SEED)
    with proxy_of_store(environment) as (proxy, variables):
        proxy.rule = harm = Harm(chance)
        running = start("run", "--commit-every", "500ms", cwd=tmp_path, env=variables)
        try:
            pipeline.send()
            wait_until(pipeline.is_delivered, 240)
            harm.is_on, until = True, time.monotonic() + SECONDS
            while time.monotonic() < until:
                pipeline.send()
                time.sleep(chance.uniform(0.2, 2))
                if chance.random() < 0.1:
                    with away(harm):
                        time.sleep(chance.uniform(2, 10))
                if chance.random() < 0.15 and (pid := part(running, chance.choice(PARTS))):
                    os.kill(pid, signal.SIGKILL)
            harm.is_on = False
            wait_until(pipeline.is_delivered, 240)
            running.send_signal(signal.SIGINT)
            running.wait(120)
        finally:
            running.kill()
    print(f"seed {SEED}, {pipeline.sent} transactions, harm {harm.done}")
    assert harm.done.keys() >= {*_KINDS}
    pipeline.assert_each_row_is_there_once()
    verified = zync("verify", "--json", cwd=tmp_path, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr


@contextmanager
def away(harm: Harm) -> Iterator[None]:
    """The store is away in this context."""
    harm.is_away = True
    try:
        yield
    finally:
        harm.is_away = False
