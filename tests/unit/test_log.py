"""Lines of the log show no secret, whoever's error they quote."""

import json
import logging

import pytest

from zync.log import LogFormatter


@pytest.mark.parametrize("format_", ["text", "json"])
def test_a_message_is_masked(monkeypatch: pytest.MonkeyPatch, format_: str) -> None:
    monkeypatch.setenv("ZYNC_LOG_FORMAT", format_)
    formatter = LogFormatter(lambda text: text.replace("s3cr3t", "${PASSWORD}"))
    error = "jdbc:mysql://me:s3cr3t@host failed"
    record = logging.LogRecord("zync", logging.WARNING, "", 0, "the metastore: %s", (error,), None)
    line = formatter.format(record)
    message = json.loads(line)["message"] if format_ == "json" else line.removeprefix("zync: ")
    assert message == "the metastore: jdbc:mysql://me:${PASSWORD}@host failed"
