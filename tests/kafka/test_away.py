"""While no broker answers, which may be for days, a process does not grow."""

import os

import pytest

from tests.kafka.conftest import connections
from zync.errors import ZyncError
from zync.kafka import admin
from zync.kafka.garbage import not_collecting


def test_a_question_that_nobody_answers_leaves_no_connection_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "_TIMEOUT", 1.0)
    before = connections(os.getpid())
    with not_collecting():
        brokers = admin.Brokers({"bootstrap.servers": "localhost:1"})
        for _ in range(4):
            with pytest.raises(ZyncError, match="localhost:1"):
                brokers.topic_ids(["order"])
        assert connections(os.getpid()) - before <= 2  # the next question's, and one that an error may refer to yet
