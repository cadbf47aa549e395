"""A store that is not shown to keep two writers apart is told of: `tests/store` has real ones that do, and do not."""

import logging

import pytest
from deltalake.exceptions import DeltaError

from zync.lake import probe


def test_a_store_of_which_nothing_could_be_shown_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each second writer saw the first's entry before it put its own: nothing is known of the store then."""
    late = [DeltaError("a table is there already")]
    monkeypatch.setattr(probe, "_create_at_once", lambda _location: late)
    monkeypatch.setattr(probe, "_delete", lambda _location: None)
    with caplog.at_level(logging.WARNING, "zync"):
        probe.prove("s3://lake-of-late-writers/lake")
    (record,) = caplog.records
    assert record.__dict__["values"] == {"event": "store_not_proved"}
    assert "could not be shown" in record.getMessage()
