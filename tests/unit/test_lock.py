"""One at a time may write; who comes second is told who is there, and nothing was changed."""

from pathlib import Path

import pytest

from zync.errors import OwnedError
from zync.lake.lock import locked, owned


def test_a_second_writer_of_a_table_is_told_of_the_first(tmp_path: Path) -> None:
    location = str(tmp_path / "lake" / "staging")
    second = pytest.raises(OwnedError, match=f"another zync is writing {location}: one at a time may")
    with owned(location), second as raised, owned(location):
        pass
    assert raised.value.exit_code == 3
    with owned(location):
        pass


def test_a_second_run_is_told_of_the_first_and_not_of_a_table(tmp_path: Path) -> None:
    location, who = str(tmp_path / "run"), f"another `zync run` is running on the lake {tmp_path}"
    second = pytest.raises(OwnedError, match=f"^{who}: one at a time may. Nothing was changed$")
    with owned(location, who), second, owned(location, who):
        pass


def test_a_lock_is_waited_for_as_long_as_is_said(tmp_path: Path) -> None:
    with locked(tmp_path / "lock", wait=0) as ours, locked(tmp_path / "lock", wait=0.05) as theirs:
        assert (ours, theirs) == (True, False)


def test_what_is_not_on_this_machine_has_no_lock() -> None:
    with owned("s3://bucket/staging"), owned("s3://bucket/staging"):
        pass
