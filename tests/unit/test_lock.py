"""One at a time may write; who comes second is told who is there, and nothing was changed."""

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kafka.conftest import wait_until
from zync.errors import OwnedError
from zync.lake.lock import Wait, locked, owned, taken_over


def test_a_second_writer_of_a_table_is_told_of_the_first(tmp_path: Path) -> None:
    location = str(tmp_path / "lake" / "staging")
    second = pytest.raises(OwnedError, match=f"another zync is writing {location}: one at a time may")
    with owned(location, what="sync"), second as raised, owned(location, what="sync"):
        pass
    assert raised.value.exit_code == 3
    with owned(location, what="sync"):
        pass


def test_a_second_run_is_told_of_the_first_and_not_of_a_table(tmp_path: Path) -> None:
    location, who = str(tmp_path / "run"), f"another `zync run` is running on the lake {tmp_path}"
    second = pytest.raises(OwnedError, match=f"^{who}: one at a time may. It is zync run on .* Nothing was changed$")
    with owned(location, who, what="run"), second, owned(location, who, what="run"):
        pass


def test_a_lock_is_waited_for_as_long_as_is_said(tmp_path: Path) -> None:
    with locked(tmp_path / "lock", wait=0) as ours, locked(tmp_path / "lock", wait=0.05) as theirs:
        assert (ours, theirs) == (True, False)


def test_a_standby_waits_for_the_lock_and_takes_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The owner is another process: a lock of this one's would be no different, but has the same pid."""
    caplog.set_level("INFO", "zync")
    location, waits = str(tmp_path / "staging"), []
    with ThreadPoolExecutor(1) as pool:
        with owned(location, what="sync"):
            waiting = pool.submit(_take, location, Wait(standby=True, report=waits.append))
            wait_until(lambda: bool(waits))
        assert waiting.result(10)
    me = f"zync sync on {socket.gethostname()} (pid {os.getpid()})"
    assert caplog.messages == [f"waiting as standby: {me} has {location}", f"took over {location} from {me}"]
    assert [str(owner) for owner in waits[:1]] == [me]
    assert waits[-1] is None


def test_a_standby_that_is_stopped_holds_nothing(tmp_path: Path) -> None:
    location, stop = str(tmp_path / "staging"), threading.Event()
    with owned(location, what="sync"):
        stop.set()
        assert not _take(location, Wait(standby=True, stop=stop))


def test_a_lock_whose_file_names_nobody_is_waited_for_all_the_same(tmp_path: Path) -> None:
    """That of an older zync, or of a process that has just taken it."""
    with locked(tmp_path / ".staging.lock", wait=0), pytest.raises(OwnedError, match="one at a time may. Nothing"):
        _take(str(tmp_path / "staging"), Wait())


def test_the_lock_that_is_to_be_taken_over_is_held_once_its_owner_ends(tmp_path: Path) -> None:
    location, name = str(tmp_path / "staging"), "to-kafka"
    with ExitStack() as first:
        first.enter_context(owned(location, what="first", name=name))
        with taken_over(location, what="second", name=name):
            first.close()
            wait_until(lambda: _owner_is("second", location, name), 10)
    with owned(location, what="third", name=name) as ownership:
        assert ownership.is_held


def test_a_place_that_may_only_be_read_is_delivered_from_without_a_lock(tmp_path: Path) -> None:
    with taken_over(str(tmp_path / "missing" / "staging"), what="sync-to kafka", name="to-kafka") as ownership:
        assert ownership.is_held


def _take(location: str, wait: Wait) -> bool:
    with owned(location, what="sync", wait=wait) as ownership:
        return ownership.is_held


def _owner_is(what: str, location: str, name: str) -> bool:
    try:
        with owned(location, what="asking", name=name):
            return False
    except OwnedError as error:
        return f"It is zync {what} on" in str(error)
