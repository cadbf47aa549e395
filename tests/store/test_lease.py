"""The lease of a table in a real store: one process has it, others wait for it, and whoever lost it learns of it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.kafka.conftest import wait_until
from tests.kafka.harms import Clock
from tests.store.proxy import Answer, Broken, Proxy, Request, running_proxy
from tests.store.s3 import BUCKET
from zync.errors import OwnedError, ZyncError
from zync.lake import lease
from zync.lake.lease import Lease
from zync.lake.lock import Wait, owned, taken_over
from zync.lake.objects import StoredObject
from zync.lake.owner import Owner, this_process, to_bytes

pytestmark = pytest.mark.usefixtures("s3")
T = TypeVar("T")
TERM, RENEW = 3.0, 0.5
ELSEWHERE = Owner("1", "elsewhere", 7, "sync", "another boot", "1")

_HOLDER = """\
import sys, time
from zync.lake import lease
from zync.lake.lock import owned
lease.TERM_SECONDS, lease.RENEW_SECONDS = {term}, {renew}
with owned({location!r}, what="sync") as ownership:
    print("holds", time.time(), flush=True)
    while True:
        ownership.check()
        time.sleep(0.05)
"""


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table's, with a lease that runs out sooner."""
    for name, seconds in (("TERM_SECONDS", TERM), ("RENEW_SECONDS", RENEW)):
        monkeypatch.setattr(lease, name, seconds)
    return f"s3://{BUCKET}/{tmp_path.name}/staging"


@pytest.fixture
def proxy(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with running_proxy(environment["AWS_ENDPOINT_URL"]) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
        yield running


@pytest.fixture
def holder(location: str) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts processes that hold the lease, or are refused."""
    processes: list[subprocess.Popen[str]] = []

    def start(**options: Any) -> "subprocess.Popen[str]":
        code = _HOLDER.format(location=location, term=TERM, renew=RENEW)
        command = [sys.executable, "-c", code]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(command, text=True, **pipes, **options))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def lease_object(location: str) -> StoredObject:
    folder, _, table = location.rpartition("/")
    return StoredObject(folder, f".{table}.lease")


def patiently(request: Callable[[], T]) -> T:
    """Makes a request of the test's own again where a busy machine did not answer it in time."""
    for _ in range(3):
        with suppress(ZyncError):
            return request()
    return request()


def put(location: str, owner: Owner, **values: int | bool) -> None:
    """Writes a lease whatever was there, as another process does that has seen it run out."""
    answer = patiently(lease_object(location).read)
    content = to_bytes(owner, **values)
    if answer is None:
        lease_object(location).create(content)
    else:
        lease_object(location).replace(content, answer[1])


def content(location: str) -> dict[str, Any]:
    answer = patiently(lease_object(location).read)
    assert answer
    return dict(json.loads(answer[0]))


def take(location: str, wait: Wait | None = None) -> bool:
    with owned(location, what="sync", wait=wait) as ownership:
        return ownership.is_held


def _await_error(check: Callable[[], None]) -> None:
    """Calls `check` until it raises."""
    wait_until(check, 5)


def test_of_several_at_once_one_gets_the_lease(location: str) -> None:
    leases = [Lease(location, ".staging.lease", f"sync {number}") for number in range(8)]
    start = threading.Barrier(len(leases))

    def attempt(one: Lease) -> Owner | None:
        start.wait()
        return one.take(lambda _: True, patient=False)

    with ThreadPoolExecutor(len(leases)) as pool:
        others = list(pool.map(attempt, leases))
    assert others.count(None) == 1
    winner = leases[others.index(None)]
    assert all(other is None or other.id == winner.owner.id for other in others)
    winner.release()
    assert content(location)["released"]


def test_a_second_process_is_refused_by_the_owners_name_and_what_was_released_is_free(location: str) -> None:
    text = (
        rf"another zync is writing {location}: one at a time may\. It is zync sync on \S+ \(pid {os.getpid()}\)\. Not"
    )
    with owned(location, what="sync"), pytest.raises(OwnedError, match=text):
        take(location)
    began = time.monotonic()
    assert take(location)
    assert time.monotonic() - began < 2


def test_a_holder_elsewhere_that_renews_is_seen_to_live(location: str) -> None:
    """On another host nothing but its renewals says that it lives."""
    put(location, ELSEWHERE, count=1)
    ended = threading.Event()

    def renew() -> None:
        count = 1
        while not ended.wait(0.5):
            put(location, ELSEWHERE, count=(count := count + 1))

    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        with pytest.raises(OwnedError, match=r"It is zync sync on elsewhere \(pid 7\)"):
            take(location)
    finally:
        ended.set()
        renewing.join()


def test_a_holder_elsewhere_that_died_is_replaced_after_the_term(location: str) -> None:
    put(location, ELSEWHERE, count=1)
    began = time.monotonic()
    assert take(location)
    assert TERM <= time.monotonic() - began < TERM + 3


def test_a_holder_of_this_host_that_was_killed_is_replaced_at_once(
    location: str, holder: Callable[..., "subprocess.Popen[str]"]
) -> None:
    process = holder()
    assert process.stdout
    assert process.stdout.readline()
    process.kill()
    process.wait()
    began = time.monotonic()
    assert take(location)
    assert time.monotonic() - began < TERM - 0.5


def test_a_holder_whose_clock_is_wrong_keeps_its_lease_and_loses_it_as_any_other(
    location: str, holder: Callable[..., "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    """Its clock is an hour ahead, then it is suspended: only what it writes counts, by the other's monotonic clock."""
    clock = Clock(tmp_path)
    clock.set(3600)
    process = holder(env={**os.environ, **clock.env})
    assert process.stdout
    assert float(process.stdout.readline().split()[1]) > time.time() + 3000
    waits: list[Owner | None] = []
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(take, location, Wait(standby=True, report=waits.append))
        time.sleep(TERM + 1)
        assert not waiting.done()
        process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        assert waiting.result(TERM + 5)
        assert time.monotonic() - began > TERM - RENEW - 1
    process.send_signal(signal.SIGCONT)
    assert process.wait(10)
    assert process.stderr
    assert "OwnedError: zync sync on" in process.stderr.read()
    assert [owner and owner.pid for owner in (waits[0], waits[-1])] == [process.pid, None]


def test_who_lost_the_lease_to_another_learns_its_name_and_leaves_its_lease_alone(location: str) -> None:
    with owned(location, what="sync") as ownership:
        ownership.check()
        put(location, ELSEWHERE, count=1)
        text = rf"^zync sync on elsewhere \(pid 7\) took over {location}, .* What this one committed stays$"
        with pytest.raises(OwnedError, match=text):
            _await_error(ownership.check)
    assert content(location)["host"] == "elsewhere"
    assert not content(location).get("released")


def test_a_lease_that_somebody_deleted_is_written_again(location: str) -> None:
    from zync.lake.storage import arrow_files

    with owned(location, what="sync") as ownership:
        arrow_files(location.rpartition("/")[0]).delete_file(".staging.lease")
        wait_until(lambda: lease_object(location).read() is not None, 5)
        ownership.check()


@pytest.mark.parametrize("taken", [False, True])
def test_a_store_that_is_away_only_warns_and_then_says_who_took_over(
    location: str, proxy: Proxy, environment: dict[str, str], caplog: pytest.LogCaptureFixture, *, taken: bool
) -> None:
    caplog.set_level("INFO", "zync")

    def away(_request: Request, _forward: Callable[[], None]) -> Answer | None:
        raise Broken

    with owned(location, what="sync") as ownership:
        proxy.rule = away
        wait_until(lambda: "was not renewed for" in caplog.text, 20)
        ownership.check()
        if taken:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("AWS_ENDPOINT_URL", environment["AWS_ENDPOINT_URL"])
                put(location, ELSEWHERE, count=1)
        proxy.rule = None
        wait_until(lambda: ("took over" if taken else "is renewed again") in caplog.text, 20)
        if taken:
            with pytest.raises(OwnedError, match="elsewhere"):
                ownership.check()
        else:
            ownership.check()


def test_puts_whose_answers_are_lost_cost_nobody_the_lease(location: str, proxy: Proxy) -> None:
    """Each put lands, and the connection breaks before its answer."""

    def lose(request: Request, forward: Callable[[], None]) -> Answer | None:
        if request.method == "PUT":
            forward()
            raise Broken
        return None

    proxy.rule = lose
    with owned(location, what="sync") as ownership:
        assert ownership.lease
        before = content(location)["count"]
        wait_until(lambda: content(location)["count"] > before + 2, 10)
        ownership.check()
    assert content(location)["released"]


def test_a_standby_does_not_take_a_lease_over_because_the_store_was_away_for_itself(
    location: str, proxy: Proxy
) -> None:
    """A holder that renews meanwhile lives, and what a standby could not see says nothing."""
    put(location, ELSEWHERE, count=1)
    away = False

    def rule(_request: Request, _forward: Callable[[], None]) -> Answer | None:
        if away:
            raise Broken
        return None

    proxy.rule = rule
    stop, waits = threading.Event(), list[Owner | None]()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(take, location, Wait(standby=True, stop=stop, report=waits.append))
        wait_until(lambda: bool(waits), 5)
        away = True
        time.sleep(TERM + 1)
        away = False
        time.sleep(TERM - 1)  # it looks again, and sees what it saw before
        put(location, ELSEWHERE, count=2)
        time.sleep(1.5)
        assert not waiting.done()
        stop.set()
        assert not waiting.result(5)


@pytest.mark.parametrize("status", [403, 501])
def test_a_store_that_takes_no_lease_is_written_without_and_no_standby_can_wait_there(
    location: str, proxy: Proxy, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    code = {403: b"<Error><Code>AccessDenied</Code></Error>", 501: b"<Error><Code>NotImplemented</Code></Error>"}
    proxy.rule = lambda request, _: Answer(status, code[status]) if request.method == "PUT" else None
    with owned(location, what="sync") as ownership:
        assert ownership.is_held
        ownership.check()
    assert "is written without a lease (" in caplog.text
    with pytest.raises(ZyncError, match="no permission to write|a request that zync needs"):
        take(location, Wait(standby=True))


def test_a_delivery_that_is_taken_over_ends_the_first_by_the_name_of_the_second(location: str) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(taken_over(location, what="first", name="to-kafka"))
        second = stack.enter_context(taken_over(location, what="second", name="to-kafka"))
        with pytest.raises(OwnedError, match="zync second on"):
            _await_error(first.check)
        second.check()


def test_a_dead_process_is_told_from_a_live_one_and_from_another_of_its_pid() -> None:
    me = this_process("sync")
    assert (me.is_alive(), me.is_dead()) == (True, False)
    assert (ELSEWHERE.is_alive(), ELSEWHERE.is_dead()) == (False, False)
    reborn = Owner(me.id, me.host, me.pid, me.what, me.system, "1")
    assert (reborn.is_alive(), reborn.is_dead()) == (False, True)
    process = subprocess.Popen(["true"])
    wait_until(lambda: Owner("", "", process.pid, "", me.system, "").is_dead(), 5)  # not waited for: a zombie's entry
    process.wait()
